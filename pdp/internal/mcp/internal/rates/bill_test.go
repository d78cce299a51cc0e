package rates_test

import (
	"testing"
	"time"

	"policy-service/pdp/internal/mcp/internal/rates"
	"policy-service/pdp/pdptest/clock"
)

// billed makes a limiter, and the bill of a message of p.
func billed(t *testing.T, o rates.Options) (*clock.Clock, *rates.Limiter, *rates.Bill) {
	t.Helper()
	c := clock.New()
	l := limiter(t, c, o)
	return c, l, rates.BillOf(l.WithBill(t.Context(), "p"))
}

// TestBillOfRefusedWork: work that is refused pays nothing, and so gets no credit for what comes after it.
func TestBillOfRefusedWork(t *testing.T) {
	t.Parallel()
	_, l, b := billed(t, rates.Options{Rate: 50, Burst: 200})
	l.Charge("p", 200+150) // other work owes 3 s
	for range 5 {
		if after, ok := b.Pay(t.Context(), 64); ok || after < 3*time.Second {
			t.Fatalf("got %v, %v", after, ok)
		}
	}
}

// TestBillAges: what a message has paid long ago does not pay for what it causes now.
func TestBillAges(t *testing.T) {
	t.Parallel()
	c, l, b := billed(t, rates.Options{Rate: 50, Burst: 200})
	b.Pay(t.Context(), 300)
	c.Advance(time.Hour)
	l.Charge("p", 200+150)
	if after, ok := b.Pay(t.Context(), 3); ok {
		t.Errorf("got %v, %v", after, ok)
	}
}

// TestNobodyOwesMore: one message that costs much more than a full bucket keeps a person waiting for a minute and no longer.
func TestNobodyOwesMore(t *testing.T) {
	t.Parallel()
	_, l, b := billed(t, rates.Options{Rate: 1, Burst: 20})
	if after, ok := b.Pay(t.Context(), 5000); !ok {
		t.Fatalf("got %v, %v", after, ok)
	}
	if _, after, ok := l.Admit("p", "p", ""); ok || after > 62*time.Second {
		t.Errorf("got %v, %v", after, ok)
	}
}
