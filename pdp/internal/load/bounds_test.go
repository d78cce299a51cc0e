package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"policy-service/pdp/internal/latency"
)

// metric is one measure of a case, under a load if that matters.
type metric struct{ of, at, what string }

const (
	cpuTimes        = "CPU of a request, times the floor's"
	manyTimes       = "CPU of a request, times that of 10 policies"
	allocationCount = "allocations a request"
	allocationBytes = "kB allocated a request"
	idleMemory      = "RSS idle, MB"
	idleCPU         = "CPU idle, %"
	quietP99        = "p99 before a reload, ms"
	reloadP99       = "p99 in a reload, ms"
	reloadTime      = "from an edit until it is in force, s"
	reloadCPU       = "CPU from an edit until it is in force, s"
	peakMemory      = "RSS in a reload at its peak, MB"
	afterMemory     = "RSS after a reload, MB"
)

// bound is how much a metric may be at most, as the issue with that number says.
type bound struct {
	metric
	most  float64
	issue int
}

// bounds end the run with an error where they are broken.
var bounds = []bound{
	{metric{"policies-10000", "128", manyTimes}, 1.6, 7},
	{metric{"strict-key", "128", cpuTimes}, 2.2, 25},
	{metric{"best-effort-key", "128", cpuTimes}, 2.2, 25},
	{metric{"policies-10", "128", cpuTimes}, 1.5, 25},
	{metric{"strict-key", "32", cpuTimes}, 2.5, 25},
	{metric{"strict-key", "4", cpuTimes}, 4.5, 25},
	{metric{"strict-key", "5000/s", cpuTimes}, 1.8, 25},
	{metric{"strict-key", "", allocationCount}, 135, 25},
	{metric{"idle", "", idleMemory}, 60, 49},
	{metric{"reload", reloadLoad.String(), reloadP99}, 80, 52}, // 30 while a load rested every 4 ms
}

// hasBound says whether a case is held to something under a load.
func (o options) hasBound(name string, l load) bool {
	return slices.ContainsFunc(o.bounds, func(b bound) bool { return b.of == name && b.at == l.String() })
}

// brokenBy reports whether runs break the bound: the median exceeds it, and so do four of five. A value that is no number does.
func (b bound) brokenBy(runs []float64) bool {
	over := 0
	for _, v := range runs {
		if !(v <= b.most) {
			over++
		}
	}
	return !(median(numbersOf(runs)) <= b.most) && 5*over >= 4*len(runs)
}

// numbersOf has values that are no number count as the highest.
func numbersOf(runs []float64) []float64 {
	runs = slices.Clone(runs)
	for i, v := range runs {
		if math.IsNaN(v) {
			runs[i] = math.Inf(1)
		}
	}
	return runs
}

func (m metric) String() string {
	if m.at == "" {
		return m.of + ": " + m.what
	}
	return m.of + " at " + m.at + ": " + m.what
}

// comparison is the report over all cases, with the numbers of each.
type comparison struct {
	report
	names        []string             // of the cases
	ours, floors map[metric][]float64 // a number for each run
	times        map[timed]*latency.Histogram
}

// timed is whose answers were timed.
type timed struct {
	of, at string
	floor  bool
}

func newComparison(out io.Writer) *comparison {
	return &comparison{report: report{out}, ours: map[metric][]float64{}, floors: map[metric][]float64{}, times: map[timed]*latency.Histogram{}}
}

func (c *comparison) add(m metric, ours, floors float64) {
	c.ours[m] = append(c.ours[m], ours)
	c.floors[m] = append(c.floors[m], floors)
}

func (c *comparison) addTimes(of string, l load, floors, ours *latency.Histogram) {
	for key, times := range map[timed]*latency.Histogram{{of, l.String(), true}: floors, {of, l.String(), false}: ours} {
		if c.times[key] == nil {
			c.times[key] = new(latency.Histogram)
		}
		c.times[key].Add(times)
	}
}

// against makes a metric of one case that is a multiple of another's, run by run.
func (c *comparison) against(of, what, other, by string) {
	for m, many := range c.ours {
		if m.of != of || m.what != by {
			continue
		}
		few := c.ours[metric{other, m.at, by}]
		for i := range min(len(many), len(few)) {
			times := many[i] / few[i]
			if math.IsInf(few[i], 1) { // nothing is few times that
				times = none
			}
			c.add(metric{of, m.at, what}, times, 1)
		}
	}
}

// judge prints how the bounds fare, as a table. It is an error that one is broken.
func (c *comparison) judge(bounds []bound) (err error) {
	c.print("\n| bound | most | issue | measured | |\n|---|---|---|---|---|")
	for _, b := range bounds {
		runs, judged := c.ours[b.metric], "holds"
		if len(runs) == 0 {
			continue
		}
		if b.brokenBy(runs) {
			judged = "broken"
			err = errors.Join(err, fmt.Errorf("%v is %s, the bound of issue %d is %g", b.metric, spread(runs), b.issue, b.most))
		}
		c.print("| %v | %g | %d | %s | %s |", b.metric, b.most, b.issue, spread(runs), judged)
	}
	return err
}
