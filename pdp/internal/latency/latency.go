// Package latency measures how long calls take. [Measure] is the loop: it makes the calls, from several goroutines at
// once ([Together]), and counts each in a [Histogram]. A Histogram has room for any duration in a fixed 15 kB, takes one
// in a few nanoseconds, and gives quantiles to within 3 percent. [Quantiles] report them. The bench command measures
// decisions so, and pdp/internal/load measures answers over HTTP. The package does not know the calls.
package latency

import (
	"math"
	"math/bits"
	"time"
)

// A duration of up to 63 ns has a bucket of its own. Above, every doubling is cut
// into 32 buckets of equal width, which is where the 3 percent come from.
const (
	perDoubling = 32
	bucketCount = (63-5)*perDoubling + perDoubling
)

// Histogram counts durations. The zero value is ready; it is for one goroutine,
// and [Histogram.Add] puts those of several together.
type Histogram struct {
	counts [bucketCount]uint64
	count  uint64
	max    time.Duration
}

// Record counts one duration. One below zero, of a clock that was set back,
// counts as zero.
func (h *Histogram) Record(d time.Duration) {
	d = max(d, 0)
	h.counts[bucketOf(d)]++
	h.count++
	h.max = max(h.max, d)
}

// Add counts all that another one counted.
func (h *Histogram) Add(other *Histogram) {
	for i, n := range other.counts {
		h.counts[i] += n
	}
	h.count += other.count
	h.max = max(h.max, other.max)
}

// Count is how many durations were recorded.
func (h *Histogram) Count() uint64 { return h.count }

// Max is the longest of them, exactly; 0 where there are none.
func (h *Histogram) Max() time.Duration { return h.max }

// Quantile is the duration that the part q of all did not exceed, 0.99 for the
// ninety-ninth percentile; 0 where there are none.
func (h *Histogram) Quantile(q float64) time.Duration {
	rank, seen := uint64(math.Ceil(q*float64(h.count))), uint64(0)
	for i, n := range h.counts {
		if seen += n; n > 0 && seen >= rank {
			return min(upperEnd(i), h.max)
		}
	}
	return h.max
}

func bucketOf(d time.Duration) int {
	shift := max(0, bits.Len64(uint64(d))-6)
	return shift*perDoubling + int(uint64(d)>>shift)
}

// upperEnd is the longest duration of a bucket.
func upperEnd(bucket int) time.Duration {
	shift := max(0, bucket/perDoubling-1)
	return time.Duration((uint64(bucket-shift*perDoubling)+1)<<shift - 1)
}
