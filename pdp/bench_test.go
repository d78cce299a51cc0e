package pdp

import (
	"fmt"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"policy-service/evaluation"
	"policy-service/pdp/internal/bundle"
	"policy-service/pdp/internal/engine"
	"policy-service/pdp/pdptest/bound"
	"policy-service/pdp/pdptest/organisation"
)

// office is an organisation whose bundle is loaded, and what is asked of it.
type office struct {
	files  fstest.MapFS
	bundle *Bundle
	pdp    *PDP
	bodies [][]byte
	calls  []Call
}

// offices are made once, whatever asks for them.
var offices = struct {
	sync.Mutex
	made map[[2]int]*office
}{made: map[[2]int]*office{}}

func officeOf(b *testing.B, policies, entities int) *office {
	b.Helper()
	offices.Lock()
	defer offices.Unlock()
	size := [2]int{policies, entities}
	if w := offices.made[size]; w != nil {
		return w
	}
	w := newOffice(b, organisation.New(policies, entities))
	offices.made[size] = w
	return w
}

const manyRequests = 1024

func newOffice(b *testing.B, o *organisation.Organisation) *office {
	b.Helper()
	w := &office{files: o.Files()}
	bundle := bundleFrom(b, FS(w.files))
	w.bundle, w.pdp = bundle, Of(bundle, Options{NewID: func() string { return "0" }})
	allows := 0
	for _, body := range o.Bodies(manyRequests) {
		r, err := evaluation.DecodeAuthZEN([]byte(body), "", evaluation.DefaultLimits())
		if err != nil {
			b.Fatalf("%s: %v", body, err)
		}
		call := Call{Request: r, Now: time.Unix(1_700_000_000, 0)}
		w.bodies, w.calls = append(w.bodies, []byte(body)), append(w.calls, call)
		if w.decide(b, call).Allow {
			allows++
		}
	}
	if allows < manyRequests/10 || allows > manyRequests*9/10 {
		b.Fatalf("%d of %d requests are allowed: neither answer may be rare", allows, manyRequests)
	}
	return w
}

func (w *office) decide(b *testing.B, call Call) evaluation.Decision {
	b.Helper()
	d, err := w.pdp.Evaluate(b.Context(), call)
	must(b, err)
	return d
}

// sizes are those of the promise: the largest at most four times the smallest.
var sizes = []int{10, 1000, 10_000}

// How long does a decision take from a decoded request, by the number of policies?
func BenchmarkDecisionByPolicies(b *testing.B) {
	for _, n := range sizes {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			w := officeOf(b, n, 10_000)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				w.decide(b, w.calls[i%len(w.calls)])
			}
			b.ReportMetric(w.considered(), "considered/op")
		})
	}
}

// considered is how many policies an average request is put to.
func (w *office) considered() float64 {
	v := w.bundle.Views[evaluation.DefaultTenant]
	found := 0
	for _, call := range w.calls {
		q, err := questionOf(w.bundle, v, call)
		if err != nil {
			return -1
		}
		given, _ := engine.PoliciesFor(v, q, new(bundle.Scratch))
		found += len(given)
	}
	return float64(found) / float64(len(w.calls))
}

// How many times longer does a decision take over 10,000 policies than over 10? Both take turns, so that whatever else
// the machine does befalls both.
func BenchmarkDecision10000PoliciesAgainst10(b *testing.B) {
	few, many := officeOf(b, 10, 10_000), officeOf(b, 10_000, 10_000)
	var turns bound.Passes
	b.ReportAllocs()
	for i := 0; b.Loop(); i += 64 {
		ofFew := few.turn(b, i)
		turns.Against(many.turn(b, i), ofFew)
	}
	bound.Check(b, turns.Median(), "x-of-10", 4)
	b.ReportMetric(0, "ns/op") // an op is 64 decisions of each, which tells nothing
}

func (w *office) turn(b *testing.B, from int) time.Duration {
	b.Helper()
	start := time.Now()
	for i := range 64 {
		w.decide(b, w.calls[(from+i)%len(w.calls)])
	}
	return time.Since(start)
}

// How long does it take from the bytes of a body to the bytes of its answer, with 1,000 policies and 100,000 entities?
func BenchmarkBodyToDecision(b *testing.B) {
	w, limits := officeOf(b, 1000, 100_000), evaluation.DefaultLimits()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		r, err := evaluation.DecodeAuthZEN(w.bodies[i%len(w.bodies)], "", limits)
		must(b, err)
		d := w.decide(b, Call{Request: r})
		if _, err := r.Shape.Answer(d); err != nil {
			b.Fatal(err)
		}
	}
}

// How long does an explained decision take, which asks cedar-go clause by clause?
func BenchmarkExplainedDecisionBy1000Policies(b *testing.B) {
	w := officeOf(b, 1000, 10_000)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		call := w.calls[i%len(w.calls)]
		call.Explain = true
		w.decide(b, call)
	}
}

// How long does it take to find the policies that a request could match, once its ancestors are known?
func BenchmarkIndexLookupByPolicies(b *testing.B) {
	for _, n := range sizes {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			w := officeOf(b, n, 10_000)
			v := w.bundle.Views[evaluation.DefaultTenant]
			all := make([]bundle.Lineages, len(w.calls))
			for i := range w.calls {
				q, err := questionOf(w.bundle, v, w.calls[i])
				must(b, err)
				all[i] = q.Up
			}
			s := new(bundle.Scratch)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				v.Index.Find(&all[i%len(all)], s)
			}
		})
	}
}

// How long does a bundle of 10,000 policies and 100,000 entities take to load?
func BenchmarkLoad10000PoliciesAnd100000Entities(b *testing.B) {
	files := organisation.New(10_000, 100_000).Files()
	b.ReportAllocs()
	for b.Loop() {
		if _, problems := Load(FS(files)); problems.Refuse() {
			b.Fatal(problems)
		}
	}
}
