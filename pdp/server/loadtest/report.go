package main

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"time"
)

// report prints as it is measured, and what compares cases in the end.
type report struct {
	out         io.Writer
	connections []int
	names       []string
	ratios      map[string][]float64 // by case: CPU per request to the floor's, by connections
}

func (r *report) print(format string, args ...any) { _, _ = fmt.Fprintf(r.out, format+"\n", args...) }

func (r *report) begin(o options, dir string) {
	r.ratios = map[string][]float64{}
	r.print("%d cores, %s; %v for each case and number of connections, in turns of %v; the log is in %s", runtime.NumCPU(), runtime.Version(), o.duration, slice, dir)
	r.print("requests/s, CPU and ratios of both are medians of turns, latencies are of all turns; CPU is the server's and gen. the generator's, in µs a request, and CPU/commit in µs")
}

func (r *report) beginCase(c testCase) {
	r.names = append(r.names, c.name)
	r.print("\n%s: %s", c.name, c.what)
	r.print("%5s  %-5s  %10s  %8s  %8s  %8s  %8s  %6s%s", "conns", "", "requests/s", "CPU", "p50", "p99", "p99.9", "gen.", logHead(c))
}

func logHead(c testCase) string {
	if c.log == "" {
		return ""
	}
	return fmt.Sprintf("  %14s  %10s", "records/commit", "CPU/commit")
}

// measured prints the three lines of one number of connections.
func (r *report) measured(c testCase, connections int, sides [2]*side) {
	for i, s := range sides {
		line := fmt.Sprintf("%5d  %-5s  %10.0f  %8s  %8s  %8s  %8s  %6s", connections, [2]string{"floor", "ours"}[i],
			s.median(sample.perSecond), micros(s.median(sample.cpuPerRequest)),
			quantile(s, .5), quantile(s, .99), quantile(s, .999), micros(s.median(sample.generatorCost)))
		if i == 1 && c.log != "" {
			line += fmt.Sprintf("  %14.1f  %10s", s.median(sample.recordsPerCommit), micros(s.median(sample.cpuPerCommit)))
		}
		r.print("%s", line)
	}
	cpu := ratio(sides, sample.cpuPerRequest)
	r.ratios[c.name] = append(r.ratios[c.name], cpu)
	times := func(q float64) float64 {
		return float64(sides[1].times.Quantile(q)) / float64(sides[0].times.Quantile(q))
	}
	r.print("%5d  %-5s  %10.2f  %8.2f  %8.2f  %8.2f  %8.2f", connections, "ratio", ratio(sides, sample.perSecond), cpu, times(.5), times(.99), times(.999))
	if missing := dropped(sides[1]); missing > 0 {
		r.print("%5d  %d of %d records were dropped", connections, missing, sides[1].times.Count()*sides[1].perRequest())
	}
}

// dropped is how many decisions are not on record.
func dropped(s *side) (n uint64) {
	if s.setup.log == "" {
		return 0
	}
	for _, one := range s.samples {
		n += one.requests*s.perRequest() - min(one.records, one.requests*s.perRequest())
	}
	return n
}

func (r *report) allocated(ours, floor float64) {
	r.print("allocations a request: %.0f, of the floor %.0f (counted in one process, over 32 connections)", ours, floor)
}

// boundConnections is over how many connections the bounds hold.
const boundConnections = 128

// bounds are how many times the floor's CPU per request a case may cost.
var bounds = map[string]float64{"best-effort-key": 3, "strict-key": 4.5}

// manyPolicies is how many times as much 10,000 policies may cost as 10.
const manyPolicies = 1.6

// end compares the cases. It is an error that one of them costs more than it may.
func (r *report) end() (err error) {
	r.print("\nCPU per request, times the floor's")
	r.print("%-18s%s", "connections", row("%7d", r.connections))
	for _, name := range r.names {
		r.print("%-18s%s", name, row("%7.2f", r.ratios[name]))
		if most, is := bounds[name]; is {
			err = errors.Join(err, r.check(name+", times the floor's CPU,", r.ratios[name], most))
		}
	}
	few, many := r.ratios["policies-10"], r.ratios["policies-10000"]
	if few == nil || many == nil {
		return err
	}
	against := make([]float64, len(few))
	for i := range few {
		against[i] = many[i] / few[i]
	}
	r.print("%-18s%s", "10,000 against 10", row("%7.2f", against))
	return errors.Join(err, r.check("10,000 policies against 10", against, manyPolicies))
}

// check holds a row to its bound.
func (r *report) check(what string, ratios []float64, most float64) error {
	i := slices.Index(r.connections, boundConnections)
	if i < 0 || ratios[i] <= most {
		return nil
	}
	return fmt.Errorf("over %d connections, %s is %.2f, the bound is %g", boundConnections, what, ratios[i], most)
}

func row[T any](format string, of []T) (line string) {
	for _, v := range of {
		line += fmt.Sprintf(format, v)
	}
	return line
}

func micros(nanoseconds float64) string { return fmt.Sprintf("%.1f", nanoseconds/1000) }

func quantile(s *side, q float64) string {
	d := s.times.Quantile(q)
	unit := time.Duration(1)
	for d/unit >= 1000 {
		unit *= 10
	}
	return d.Round(unit).String()
}
