package pdp

import (
	"context"
	"errors"
	"time"

	"policy-service/evaluation"
	"policy-service/pdp/internal/filter"
)

// The parts of an answer with conditions.
type (
	Condition     = filter.Filter
	FilterRows    = filter.Rows
	FilterOutcome = filter.Outcome // what became of one policy
	FilterRefusal = filter.Refusal
)

// FilterCall is a body of filters together with its caller and the options of the call.
type FilterCall struct {
	Filters evaluation.Filters
	evaluation.Asker
	Now     time.Time
	Explain bool // the answer says what became of each policy
}

// FilterAnswer has a condition for each question, and the parameters of all.
type FilterAnswer struct {
	Filters    []*Condition `json:"filters"`
	Parameters []any        `json:"parameters"` // each a string, or a list of strings
	Clock      bool         `json:"clock"`      // a policy read the time: the conditions are for the query that follows
}

// UnmadeFilter is an error: the question of which there is no filter, and why.
type UnmadeFilter struct {
	Question int `json:"filter"`
	*FilterRefusal
	Policies []FilterOutcome `json:"policies,omitzero"` // with Explain
}

// Filter makes the conditions by which an application's own query selects the rows that [PDP.Evaluate] would allow, by one bundle
// and one reading of the clock. Parameters are numbered over all of them. It records nothing.
func (p *PDP) Filter(ctx context.Context, c FilterCall) (FilterAnswer, error) {
	call := Call{Asker: c.Asker, Now: c.Now}
	p.begin(ctx, &call)
	b := p.Bundle()
	answer := FilterAnswer{Parameters: []any{}}
	for n, q := range c.Filters.Questions {
		call.Request = q.Request
		in := inquire(b, &call)
		before := len(answer.Parameters)
		f, err := filter.Make(ctx, &in, filter.Options{
			Dialect: filter.Dialect(c.Filters.Dialect), Alias: q.Alias, First: c.Filters.FirstParameter + before, Explain: c.Explain,
		})
		var refusal *FilterRefusal
		var bad *evaluation.Error
		switch {
		case errors.As(err, &refusal) && f != nil:
			return FilterAnswer{}, &UnmadeFilter{n, refusal, f.Policies}
		case errors.As(err, &refusal):
			return FilterAnswer{}, &UnmadeFilter{n, refusal, nil}
		case errors.As(err, &bad):
			return FilterAnswer{}, q.InBody(bad)
		case err != nil:
			return FilterAnswer{}, err
		}
		for i, part := range f.Parts {
			if at, ok := part.(int); ok {
				f.Parts[i] = before + at
			}
		}
		answer.Filters, answer.Parameters = append(answer.Filters, f), append(answer.Parameters, f.Parameters...)
		answer.Clock = answer.Clock || f.Clock
	}
	return answer, nil
}

// VerifyFilters returns a SELECT on the catalog of a database in a dialect, postgres or sqlite. It returns a row for each column that
// is not as filters.yaml maps it. It reports false if nothing is mapped.
func VerifyFilters(b *Bundle, dialect string) (sql string, ok bool) {
	return filter.Verify(b, filter.Dialect(dialect)), len(b.Mappings) > 0
}
