package pdp

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"

	"policy-service/evaluation"
	"policy-service/pdp/internal/engine"
)

// TestPropertyNothingIsLeftInWhatIsLent: decisions borrow memory one after the other, and side by side. Each is the one
// that is made in memory of its own, when it is made and when all others are, and so is its record.
func TestPropertyNothingIsLeftInWhatIsLent(t *testing.T) {
	t.Parallel()
	seen := tally{}
	eachSeed(t, 30, func(t *testing.T, g *generator) {
		w := g.world(24)
		b := w.load(t)
		var calls []Call
		var want []string
		for range 20 {
			call := g.question(w).call(t)
			call.Explain = g.IntN(2) == 0
			in := inquire(b, &call)
			var w engine.Verdict
			var d evaluation.Decision
			err := in.Decide(t.Context(), &w, &d)
			calls, want = append(calls, call), append(want, ofDecision(t, d, err))
			seen.count("errors", err != nil)
			seen.count("mismatch", len(d.Mismatch) > 0)
			seen.count("explained", d.Explain != nil)
			seen.count("allow", d.Allow)
		}
		book := &borrower{t: t, on: map[string]string{}}
		p := Of(b, Options{Recorder: book, NewID: func() string { return "" }})
		var side sync.WaitGroup
		for from := range 4 {
			side.Go(func() {
				made := make([]evaluation.Decision, len(calls))
				errs := make([]error, len(calls))
				for k := range calls {
					n := (k + from*len(calls)/4) % len(calls)
					call := calls[n]
					call.RequestID = fmt.Sprint(n)
					made[n], errs[n] = p.Evaluate(t.Context(), call)
					if got := ofDecision(t, made[n], errs[n]); got != want[n] {
						t.Errorf("seed %d, question %d:\ngot  %s\nwant %s", g.seed, n, got, want[n])
					}
				}
				for n := range calls {
					if got := ofDecision(t, made[n], errs[n]); got != want[n] {
						t.Errorf("seed %d, question %d, later:\ngot  %s\nwant %s", g.seed, n, got, want[n])
					}
				}
			})
		}
		side.Wait()
		for n, text := range want {
			if got, is := book.on[fmt.Sprint(n)]; is && got != text {
				t.Errorf("seed %d, question %d, on record:\ngot  %s\nwant %s", g.seed, n, got, text)
			}
		}
	})
	seen.atLeast(t, "errors", 1)
	seen.atLeast(t, "mismatch", 1)
	seen.atLeast(t, "explained", 20)
	seen.atLeast(t, "allow", 10)
}

func ofDecision(t *testing.T, d evaluation.Decision, err error) string {
	text, bad := json.Marshal(d)
	if bad != nil {
		t.Error(bad)
	}
	return fmt.Sprintf("%s %v", text, err)
}

// borrower is a [Recorder] that knows what records said while they were lent to it.
type borrower struct {
	t  *testing.T
	mu sync.Mutex
	on map[string]string // by request id
}

func (b *borrower) Record(_ context.Context, records []Record) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range records {
		b.on[r.Call.RequestID] = ofDecision(b.t, r.Decision, nil)
	}
	return nil
}
