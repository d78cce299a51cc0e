package replay

import (
	"context"
	"time"

	"github.com/go-json-experiment/json"

	"policy-service/evaluation"
	"policy-service/pdp"
)

// Tested says which answers to the questions of tests differ between two bundles.
type Tested struct {
	// Questions are those of the tests of both, each counted once.
	Questions int            `json:"questions"`
	Same      int            `json:"same"`
	Changed   map[Class]int  `json:"changed"`
	Changes   []TestedChange `json:"changes"`
}

// TestedChange is a test whose question has another answer. Of says whose test it is: of the base, the candidate, or both.
type TestedChange struct {
	Name     string  `json:"name"`
	Position string  `json:"position"`
	Tenant   string  `json:"tenant"`
	Of       string  `json:"of"`
	Class    Class   `json:"class"`
	From     Outcome `json:"from"`
	To       Outcome `json:"to"`
	Cause    []Cause `json:"cause"`

	call pdp.Call
}

// Whose tests there are.
const (
	OfBase      = "a"
	OfCandidate = "b"
	OfBoth      = "both"
)

// CompareTests asks each question of the tests of two bundles of both, at one time. The expectation of a test has no part in it.
func CompareTests(ctx context.Context, base, candidate *Side, was, is []pdp.Example) (Tested, error) {
	made := Tested{Changed: map[Class]int{}, Changes: []TestedChange{}}
	changes := new(Differ(base, candidate)).edits()
	for _, one := range testsOf(was, is) {
		made.Questions++
		from, err := ask(ctx, base.Bundle, one.call)
		if err != nil {
			return made, err
		}
		to, err := ask(ctx, candidate.Bundle, one.call)
		if err != nil {
			return made, err
		}
		one.From, one.To, one.Class = from, to, classOf(from, to, false, false)
		if one.Class == Same {
			made.Same++
			continue
		}
		g := &Group{From: from, To: to, example: &Change{Was: from, Is: to}}
		f := finder{g: g, base: base, candidate: candidate, changes: changes, tenant: one.Tenant}
		f.explain(ctx, one.call)
		one.Cause = f.find()
		made.Changed[one.Class]++
		made.Changes = append(made.Changes, one)
	}
	return made, ctx.Err()
}

// testsOf are the tests of both bundles, those of the candidate first. Of several with one question it is the first.
func testsOf(was, is []pdp.Example) (all []TestedChange) {
	at, now := map[string]int{}, time.Now()
	for _, side := range []struct {
		of    string
		tests []pdp.Example
	}{{OfCandidate, is}, {OfBase, was}} {
		for _, e := range side.tests {
			if e.Call.Now.IsZero() {
				e.Call.Now = now
			}
			key, _ := json.Marshal(struct {
				Request    evaluation.Request
				Shape      evaluation.Shape
				Tenant     string
				Caller     string
				Now        time.Time
				Capability evaluation.Capability
			}{e.Call.Request, e.Call.Request.Shape, e.Call.Request.Tenant, e.Call.Asker.Name, e.Call.Now, e.Call.Capability}, json.Deterministic(true))
			if n, known := at[string(key)]; known {
				if all[n].Of != side.of {
					all[n].Of = OfBoth
				}
				continue
			}
			at[string(key)] = len(all)
			all = append(all, TestedChange{Name: e.Name, Position: e.Position(), Tenant: e.Call.Request.Tenant, Of: side.of, call: e.Call})
		}
	}
	return all
}
