package approval

import (
	"fmt"
	"testing"
	"time"

	"policy-service/evaluation"
)

// TestRateOfMany: more subjects than there is memory for share one rate with their
// tenant, and after a while each has its own again.
func TestRateOfMany(t *testing.T) {
	t.Parallel()
	r, now := newRates(1), time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	take := func(tenant string, n int) (time.Duration, bool) {
		return r.take(owner{tenant, evaluation.Ref{Type: "user", ID: fmt.Sprint(n)}}, now)
	}
	for n := range mostRates {
		if _, ok := take("acme", n); !ok {
			t.Fatalf("the first of subject %d is refused", n)
		}
	}
	for n, want := range []bool{true, false, false} {
		if wait, ok := take("acme", mostRates+n); ok != want || !ok && wait != time.Minute {
			t.Errorf("without room subject %d gets %v, and is to wait %v", n, ok, wait)
		}
	}
	if _, ok := take("other", 0); !ok {
		t.Error("it shares with another tenant")
	}
	if len(r.of) > mostRates+2 {
		t.Errorf("%d are remembered", len(r.of))
	}
	now = now.Add(time.Minute)
	for n := range 5 {
		if _, ok := take("acme", mostRates+n); !ok {
			t.Errorf("after a minute subject %d is refused", n)
		}
	}
	if len(r.of) > 10 {
		t.Errorf("%d are remembered after a minute", len(r.of))
	}
}
