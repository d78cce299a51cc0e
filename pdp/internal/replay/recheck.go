package replay

import (
	"context"
	"errors"
	"maps"
	"slices"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/recorder"
)

// Rechecked says of the decisions of a log whether each is the one that its own policies give.
type Rechecked struct {
	// Records were read, and Decisions is how many questions they have. Same have the answer that their policies give.
	Records   int64 `json:"records"`
	Decisions int64 `json:"decisions"`
	Same      int64 `json:"same"`
	// Different is how many have another answer. The first of them are in Differences.
	Different   int64        `json:"different"`
	Differences []Difference `json:"differences"`
	// Hidden is how many depend on a value that a mask hides, and HiddenBy names these values.
	Hidden   int64        `json:"hidden"`
	HiddenBy []Dependence `json:"hidden_by"`
	// Incomplete is how many cannot be judged, by why: see [LacksContent] and the others.
	Incomplete map[string]int64 `json:"incomplete"`
	// Examples are a few of them, by why.
	Examples map[string][]string `json:"examples"`
}

// Difference is a decision that is not the one that its policies give. Part is the first part of the answer that differs.
type Difference struct {
	ID       string  `json:"id"`
	Sequence uint64  `json:"sequence"`
	Time     string  `json:"time"`
	Tenant   string  `json:"tenant"`
	Bundle   string  `json:"bundle"`
	Part     string  `json:"part"`
	Recorded Outcome `json:"recorded"`
	Policies Outcome `json:"policies"`
}

// Dependence is a hidden place that answers depend on, and how many do.
type Dependence struct {
	Path      string   `json:"path"`
	Policies  []string `json:"policies"`
	Decisions int64    `json:"decisions"`
}

// The most that a report lists.
const (
	mostDifferences = 1000
	mostDependences = 100
	mostExamples    = 3
)

// judged is one question after it was asked again.
type judged struct {
	q    *record.Recorded
	diff *Difference
	need *pdp.Unknown
	// lacks is why it cannot be judged.
	lacks string
}

// Recheck asks each question of a log again, of the bundle that answered it then.
func Recheck(ctx context.Context, from Source, o Options) (Rechecked, error) {
	made := Rechecked{Differences: []Difference{}, Incomplete: map[string]int64{}, Examples: map[string][]string{}}
	then, limits := newBundles(from), o.limits()
	paths := map[string]*Dependence{}
	var err error
	made.Records, err = walk(ctx, from, &o, func(ctx context.Context, q question) (judged, error) {
		return recheck(ctx, q, then, limits)
	}, func(one judged) { made.add(one, paths) })
	made.HiddenBy = sorted(paths)
	return made, err
}

func recheck(ctx context.Context, q question, then *bundles, limits evaluation.Limits) (judged, error) {
	one := judged{q: q.Recorded, lacks: q.lacks}
	if q.lacks != "" {
		return one, nil
	}
	b, lacks, err := then.of(q.Recorded)
	if one.lacks = lacks; err != nil || lacks != "" {
		return one, err
	}
	was := onRecord(q.Recorded)
	call, err := recorder.CallOf(q.Recorded, b, limits)
	if errors.Is(err, record.ErrNoRequest) && was.Answer == Refused { // it was no request then either
		return one, nil
	}
	if err != nil {
		one.lacks = LacksRequest
		return one, nil
	}
	is, err := ask(ctx, b, call)
	if errors.As(err, &one.need) {
		return one, nil
	}
	if err != nil {
		return one, err
	}
	if part := differs(was, is, len(call.Hidden) > 0); part != "" {
		one.diff = &Difference{
			ID: q.ID, Sequence: q.Sequence, Time: q.Time.UTC().Format(format.TimeLayout), Tenant: q.Tenant, Bundle: q.Bundle,
			Part: part, Recorded: was, Policies: is,
		}
	}
	return one, nil
}

func (r *Rechecked) add(one judged, paths map[string]*Dependence) {
	if one.q.ID != "" { // else its kind is not known
		r.Decisions++
	}
	switch {
	case one.lacks != "":
		lacking(r.Incomplete, r.Examples, one.lacks, one.q.ID)
	case one.need != nil:
		r.Hidden++
		depends(paths, one.need)
	case one.diff != nil:
		r.Different++
		if len(r.Differences) < mostDifferences {
			r.Differences = append(r.Differences, *one.diff)
		}
	default:
		r.Same++
	}
}

// lacking counts a record that cannot be judged.
func lacking(count map[string]int64, examples map[string][]string, why, id string) {
	count[why]++
	if some := examples[why]; len(some) < mostExamples && id != "" {
		examples[why] = append(some, id)
	}
}

// depends counts an answer that depends on hidden places.
func depends(paths map[string]*Dependence, on *pdp.Unknown) {
	for _, path := range on.Paths {
		of, known := paths[path]
		if !known && len(paths) == mostDependences {
			continue
		}
		if !known {
			of = &Dependence{Path: path}
			paths[path] = of
		}
		of.Decisions++
		for _, id := range on.Policies {
			if !slices.Contains(of.Policies, id) {
				of.Policies = append(of.Policies, id)
			}
		}
	}
}

// sorted lists the places by their paths, and the policies of each by their ids.
func sorted(paths map[string]*Dependence) []Dependence {
	all := make([]Dependence, 0, len(paths))
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		slices.Sort(paths[path].Policies)
		all = append(all, *paths[path])
	}
	return all
}
