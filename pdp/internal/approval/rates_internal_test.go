package approval

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"policy-service/evaluation"
	"policy-service/pdp/internal/pace"
)

// TestRateOfMany: more subjects than there is memory for share one rate with their tenant.
func TestRateOfMany(t *testing.T) {
	t.Parallel()
	var all pace.Buckets[owner]
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	of := func(tenant string, n int) *rate.Limiter {
		return bucket(&all, owner{tenant, evaluation.Ref{Type: "user", ID: fmt.Sprint(n)}}, 1, now)
	}
	for n := range pace.Most {
		of("acme", n).AllowN(now, 1) // it would be forgotten if it were full
	}
	if a, b := of("acme", pace.Most), of("acme", pace.Most+1); a != b || a == of("acme", 0) || a == of("other", 0) {
		t.Error("subjects without room do not share with those of their tenant alone")
	}
}
