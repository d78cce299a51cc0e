package latency

import (
	"fmt"
	"time"
)

// Quantiles are the times that reports show. As JSON they are numbers of nanoseconds. Programs read them: members may
// be added, never renamed.
type Quantiles struct {
	P50  time.Duration `json:"p50"`
	P99  time.Duration `json:"p99"`
	P999 time.Duration `json:"p99_9"`
	Max  time.Duration `json:"max"`
}

// Quantiles are those of all that was recorded.
func (h *Histogram) Quantiles() Quantiles {
	return Quantiles{h.Quantile(.5), h.Quantile(.99), h.Quantile(.999), h.Max()}
}

func (q Quantiles) String() string {
	return fmt.Sprintf("p50 %s, p99 %s, p99.9 %s, max %s", Short(q.P50), Short(q.P99), Short(q.P999), Short(q.Max))
}

// Short writes a duration, rounded to three digits.
func Short(d time.Duration) string {
	unit := time.Duration(1)
	for d/unit >= 1000 {
		unit *= 10
	}
	return d.Round(unit).String()
}
