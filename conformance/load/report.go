package main

import (
	"fmt"
	"io"
	"math"

	"policy-service/pdp/latency"
)

// report prints as it is measured.
type report struct{ out io.Writer }

func (r report) print(format string, args ...any) { _, _ = fmt.Fprintf(r.out, format+"\n", args...) }

// head names the columns; withLog are those of a log.
func (r report) head(withLog bool) {
	line := fmt.Sprintf("%5s  %-5s  %10s  %8s  %8s  %8s  %8s  %6s", "conns", "", "requests/s", "CPU", "p50", "p99", "p99.9", "gen.")
	if withLog {
		line += fmt.Sprintf("  %14s  %10s", "records/commit", "CPU/commit")
	}
	r.print("%s", line)
}

// measured prints a line for each side, and one for the ratio of the second to the first.
func (r report) measured(connections int, sides []*side) {
	for _, s := range sides {
		q := s.times.Quantiles()
		line := fmt.Sprintf("%5d  %-5s  %10.0f  %8s  %8s  %8s  %8s  %6s", connections, s.name,
			s.median(sample.perSecond), micros(s.median(sample.cpuPerRequest)),
			latency.Short(q.P50), latency.Short(q.P99), latency.Short(q.P999), micros(s.median(sample.generatorCost)))
		if s.log != nil {
			line += fmt.Sprintf("  %14.1f  %10s", s.median(sample.recordsPerCommit), micros(s.median(sample.cpuPerCommit)))
		}
		r.print("%s", line)
	}
	if len(sides) < 2 {
		return
	}
	first, second := sides[0].times.Quantiles(), sides[1].times.Quantiles()
	r.print("%5d  %-5s  %10.2f  %8s  %8.2f  %8.2f  %8.2f", connections, "ratio",
		ratio(sides, sample.perSecond), known(ratio(sides, sample.cpuPerRequest)),
		float64(second.P50)/float64(first.P50), float64(second.P99)/float64(first.P99), float64(second.P999)/float64(first.P999))
	if missing := dropped(sides[1]); missing > 0 {
		r.print("%5d  %d of %d records were dropped", connections, missing, sides[1].times.Count()*sides[1].log.perRequest)
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
