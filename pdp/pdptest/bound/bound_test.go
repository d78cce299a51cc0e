package bound_test

import (
	"math"
	"testing"
	"time"

	"policy-service/pdp/pdptest/bound"
)

// A benchmark fails where a value is more than its bound, or no number.
func TestCheck(t *testing.T) {
	for value, fails := range map[float64]bool{1.49: false, 1.5: false, 1.51: true, math.Inf(1): true, math.NaN(): true} {
		var failed bool
		testing.Benchmark(func(b *testing.B) {
			bound.Check(b, value, "x", 1.5)
			failed = b.Failed()
		})
		if failed != fails {
			t.Errorf("%v against a bound of 1.5: failed is %v", value, failed)
		}
	}
}

// One pass that was disturbed does not break a bound.
func TestMedian(t *testing.T) {
	t.Parallel()
	var took, against bound.Passes
	for _, ms := range []time.Duration{3, 900, 1, 2, 4} {
		took.Took(ms * time.Millisecond)
		against.Against(ms*time.Second, 2*time.Second)
	}
	if got := took.Median(); got != 3 {
		t.Errorf("the median is %v ms, want 3", got)
	}
	if got := against.Median(); got != 1.5 {
		t.Errorf("the median is %v, want 1.5", got)
	}
	if took[0] != 3 {
		t.Error("the passes were put in another order")
	}
}
