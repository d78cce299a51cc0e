package latency

import (
	"fmt"
	"strings"
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

const barWidth = 50

// Chart draws the bars, a line each. A bar that is too short for one character still shows as a dot: people look for
// the tail. At least one bar must count something.
func Chart(bars []Bar) []string {
	var most, all uint64
	for _, bar := range bars {
		most = max(most, bar.Count)
		all += bar.Count
	}
	chart := make([]string, len(bars))
	for i, bar := range bars {
		drawn := strings.Repeat("█", int(bar.Count*barWidth/most))
		if drawn == "" && bar.Count > 0 {
			drawn = "·"
		}
		chart[i] = fmt.Sprintf("%9s  %6.2f%%  %s", Short(bar.From), 100*float64(bar.Count)/float64(all), drawn)
	}
	return chart
}

// Short writes a duration, rounded to three digits.
func Short(d time.Duration) string {
	unit := time.Duration(1)
	for d/unit >= 1000 {
		unit *= 10
	}
	return d.Round(unit).String()
}
