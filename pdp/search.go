package pdp

import (
	"context"
	"errors"
	"time"

	"policy-service/evaluation"
	"policy-service/pdp/internal/engine"
)

// examinedPerPage bounds the work of one page, and so does maxConverted, if the context has to be made anew for each
// candidate. So a page can have fewer results than the limit, and still not be the last page.
const examinedPerPage = 10_000

// SearchCall is a search together with its caller and the candidate to go on after.
type SearchCall struct {
	Search evaluation.Search
	evaluation.Asker
	Now time.Time
	// After is the last candidate that was examined before, or nil at the beginning.
	After *string
	Limit int
	// GoOn is called before each candidate, as the GoOn of a [BatchCall] is before each item.
	GoOn func(context.Context) error
}

// SearchAnswer is one page of a search.
type SearchAnswer struct {
	ID    string
	Found []evaluation.Found
	// Last is the last candidate that this page or one before it examined, or nil if there was none.
	Last *string
	// Draft is the draft of obligations, July or October, by which the search was read.
	Draft evaluation.Draft
	// More is set if candidates are left.
	More bool
	// Examined is the number of candidates that this page examined.
	Examined int
}

// Search examines candidates in the order of their ids. It decides each as [PDP.Evaluate] would, so
// every result is a permit. With an error, the answer only holds how many candidates were
// examined.
func (p *PDP) Search(ctx context.Context, search SearchCall) (SearchAnswer, error) {
	if search.Search.Request.Unknown != nil {
		return SearchAnswer{}, evaluation.Malformed("a search cannot ask what is possible, because its results are permits",
			"ask about each candidate in a batch", "options", "unknown")
	}
	call := Call{Request: search.Search.Request, Asker: search.Asker, Now: search.Now}
	p.begin(ctx, &call)
	in := inquire(p.Bundle(), &call)
	if in.Bundle == nil {
		return SearchAnswer{}, ErrNoBundle
	}
	in.NoMismatch = true
	in.Keep()
	answer := SearchAnswer{ID: p.options.NewID(), Draft: in.Draft(), Last: search.After, Found: []evaluation.Found{}}
	_, span := startStep(ctx, "authorize")
	err := examine(ctx, &in, search, &answer)
	endStep(span, err)
	if err != nil {
		return SearchAnswer{Examined: answer.Examined}, err
	}
	call.Request.Tenant = in.Request.Tenant // named, if the search left it out
	r := Record{
		ID:     answer.ID,
		Time:   call.Now,
		Call:   call,
		Search: &answer,
		Kind:   search.Search.Kind,
		Bundle: in.Bundle.Digest(),
	}
	if err := p.record(ctx, r); err != nil {
		return SearchAnswer{Examined: answer.Examined}, err
	}
	return answer, nil
}

// examine decides about one candidate after the other, up to the end of the page.
func examine(ctx context.Context, in *engine.Inquiry, search SearchCall, answer *SearchAnswer) error {
	kind := search.Search.Kind
	candidates, err := in.Candidates(ctx, kind)
	if err != nil {
		return err
	}
	candidates.Skip(search.After)
	full := func() bool { return answer.Examined == examinedPerPage || in.Renewed > maxConverted }
	for filled := 0; !full() && len(answer.Found) < search.Limit && filled <= maxFilled; {
		id, ok := candidates.Next()
		if !ok {
			break
		}
		if err := mayGoOn(ctx, search.GoOn); err != nil {
			return err
		}
		d, err := judgeCandidate(ctx, in, kind, id)
		if err != nil {
			return err
		}
		if d.Allow {
			f := resultFor(kind, &in.Request, id)
			f.Obligations = d.Obligations
			filled += 2 * filledSize(&d) // July's draft writes them twice
			answer.Found = append(answer.Found, f)
		}
		answer.Last = &id
		answer.Examined++
	}
	answer.More = candidates.Len() > 0
	return nil
}

// judgeCandidate decides about one candidate. A candidate that makes the request malformed is no
// permit.
func judgeCandidate(
	ctx context.Context, in *engine.Inquiry, kind evaluation.SearchKind, id string,
) (d evaluation.Decision, err error) {
	switch r := &in.Request; kind {
	case evaluation.SubjectSearch:
		r.Subject.ID = id
	case evaluation.ResourceSearch:
		r.Resource.ID = id
	default:
		r.Action.Name = id
	}
	var w engine.Verdict
	err = in.Decide(ctx, &w, &d)
	var malformed *evaluation.Error
	if errors.As(err, &malformed) {
		return evaluation.Decision{}, nil
	}
	return d, err
}

// resultFor returns a result, with its type as the request writes it.
func resultFor(kind evaluation.SearchKind, r *evaluation.Request, id string) evaluation.Found {
	switch kind {
	case evaluation.SubjectSearch:
		return evaluation.Found{Type: r.Subject.Type, ID: id}
	case evaluation.ResourceSearch:
		return evaluation.Found{Type: r.Resource.Type, ID: id}
	}
	return evaluation.Found{Name: id}
}
