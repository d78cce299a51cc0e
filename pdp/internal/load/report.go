package main

import (
	"fmt"
	"io"
	"math"

	"policy-service/pdp/internal/latency"
)

// report prints as it is measured.
type report struct{ out io.Writer }

func (r report) print(format string, args ...any) { _, _ = fmt.Fprintf(r.out, format+"\n", args...) }

// head names the columns; withLog are those of a log.
func (r report) head(withLog bool) {
	line := fmt.Sprintf("%7s  %-5s  %10s  %8s  %8s  %8s  %8s  %8s  %8s  %6s", "load", "", "requests/s", "CPU", "p50", "p90", "p99", "p99.9", "max", "gen.")
	if withLog {
		line += fmt.Sprintf("  %14s  %10s", "records/commit", "CPU/commit")
	}
	r.print("%s", line)
}

// quantiles are those that are printed. The last is the longest time.
var quantiles = [...]float64{.5, .9, .99, .999, 1}

// measured prints a line for each side, and one for the ratio of the second to the first.
func (r report) measured(l load, sides []*side) {
	for _, s := range sides {
		line := fmt.Sprintf("%7s  %-5s  %10.0f  %8s", l, s.name, s.median(sample.perSecond), micros(s.median(sample.cpuPerRequest)))
		for _, q := range quantiles {
			line += fmt.Sprintf("  %8s", latency.Short(s.times.Quantile(q)))
		}
		line += fmt.Sprintf("  %6s", micros(s.median(sample.generatorCost)))
		if s.log != nil {
			line += fmt.Sprintf("  %14.1f  %10s", s.median(sample.recordsPerCommit), micros(s.median(sample.cpuPerCommit)))
		}
		r.print("%s", line)
	}
	if len(sides) < 2 {
		return
	}
	line := fmt.Sprintf("%7s  %-5s  %10.2f  %8s", l, "ratio", ratio(sides, sample.perSecond), known(ratio(sides, sample.cpuPerRequest)))
	for _, q := range quantiles {
		line += fmt.Sprintf("  %8.2f", float64(sides[1].times.Quantile(q))/float64(sides[0].times.Quantile(q)))
	}
	r.print("%s", line)
	if missing := dropped(sides[1]); missing > 0 {
		r.print("%7s  %d of %d records were dropped", l, missing, sides[1].times.Count()*sides[1].log.perRequest)
	}
}

// dropped is how many decisions are not on record.
func dropped(s *side) (n uint64) {
	if s.log == nil {
		return 0
	}
	for _, one := range s.samples {
		n += one.requests*s.log.perRequest - min(one.records, one.requests*s.log.perRequest)
	}
	return n
}

// micros are microseconds; no CPU at all means that it is not known.
func micros(nanoseconds float64) string {
	if nanoseconds == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f", nanoseconds/1000)
}

// known is a ratio, or a dash if there are no numbers to divide.
func known(ratio float64) string {
	if math.IsNaN(ratio) {
		return "-"
	}
	return fmt.Sprintf("%.2f", ratio)
}
