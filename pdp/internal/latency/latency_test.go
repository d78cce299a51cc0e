package latency_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"policy-service/pdp/internal/latency"
)

// Quantiles are what sorting all durations would give, to within 3 percent, and
// never less: over durations of every size there is.
func TestQuantilesAgainstSorting(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		var whole, first, second latency.Histogram
		var all []time.Duration
		for n := range 1 + random.IntN(2000) {
			d := time.Duration(random.Uint64() >> (1 + random.IntN(63)))
			all = append(all, d)
			whole.Record(d)
			[]*latency.Histogram{&first, &second}[n%2].Record(d)
		}
		slices.Sort(all)
		first.Add(&second)
		if first != whole {
			t.Fatal("the sum of two halves is not the whole")
		}
		for _, q := range []float64{0, 0.5, 0.99, 0.999, 1} {
			exact := all[max(0, int(math.Ceil(q*float64(len(all))))-1)]
			if got := whole.Quantile(q); got < exact || float64(got) > 1.032*float64(exact)+1 {
				t.Errorf("of %d durations, quantile %v is %d, sorting says %d", len(all), q, got, exact)
			}
		}
		if whole.Max() != all[len(all)-1] || whole.Count() != uint64(len(all)) {
			t.Errorf("max %d of %d, want %d of %d", whole.Max(), whole.Count(), all[len(all)-1], len(all))
		}
	}
}

func TestNothingRecorded(t *testing.T) {
	var h latency.Histogram
	if h.Quantile(0.5) != 0 || h.Max() != 0 {
		t.Error("nothing took some time")
	}
	h.Record(-time.Second)
	if h.Max() != 0 || h.Count() != 1 {
		t.Error("a clock that was set back is not counted as no time")
	}
}
