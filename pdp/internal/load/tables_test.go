package main

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"policy-service/pdp/internal/latency"
)

// tables prints the numbers as pdp/PERFORMANCE.md has them.
func (c *comparison) tables(loads []load) {
	c.costs(loads)
	c.latencies()
	c.others()
}

// costs is the table of CPU.
func (c *comparison) costs(loads []load) {
	head, floor, many := "| "+cpuTimes, "| the floor, µs", "| *10,000 policies against 10*"
	for _, l := range loads {
		var floors []float64
		for m, of := range c.floors {
			if m.at == l.String() && m.what == cpuTimes {
				floors = append(floors, of...)
			}
		}
		head += " | " + l.String()
		floor += " | " + spread(floors)
		many += " | " + spread(c.ours[metric{"policies-10000", l.String(), manyTimes}])
	}
	rows := []string{floor}
	for _, name := range c.names {
		row, some := "| "+name, false
		for _, l := range loads {
			runs := c.ours[metric{name, l.String(), cpuTimes}]
			row += " | " + spread(runs)
			some = some || len(runs) > 0
		}
		if some {
			rows = append(rows, row)
		}
	}
	if slices.Contains(c.names, "policies-10") && slices.Contains(c.names, "policies-10000") {
		rows = append(rows, many)
	}
	if len(rows) > 1 {
		c.table(head, rows)
	}
}

// latencies is the table of times at fixed rates.
func (c *comparison) latencies() {
	row := func(name string, times *latency.Histogram) string {
		for _, q := range quantiles {
			name += fmt.Sprintf(" | %.2f", times.Quantile(q).Seconds()*1000)
		}
		return "| " + name
	}
	keys := slices.SortedFunc(maps.Keys(c.times), func(a, b timed) int {
		return cmp.Or(strings.Compare(a.at, b.at), strings.Compare(a.of, b.of))
	})
	rates := slices.DeleteFunc(keys, func(key timed) bool { return !strings.HasSuffix(key.at, "/s") })
	var rows []string
	floors := map[string]*latency.Histogram{}
	for _, key := range rates {
		if !key.floor {
			rows = append(rows, row(key.of+" at "+key.at, c.times[key]))
			continue
		}
		if floors[key.at] == nil {
			floors[key.at] = new(latency.Histogram)
		}
		floors[key.at].Add(c.times[key])
	}
	for _, at := range slices.Sorted(maps.Keys(floors)) {
		rows = append(rows, row("the floor at "+at, floors[at]))
	}
	if len(rows) > 0 {
		c.table("| latency from when a request was due, ms | p50 | p90 | p99 | p99.9 | max", rows)
	}
}

// others is the table of all other numbers.
func (c *comparison) others() {
	var rows []string
	for _, name := range c.names {
		for _, what := range []string{allocationCount, allocationBytes, idleMemory, idleCPU, quietP99, reloadP99, reloadTime, reloadCPU, peakMemory, afterMemory} {
			for m, ours := range c.ours {
				if m.of == name && m.what == what {
					rows = append(rows, fmt.Sprintf("| %v | %s | %s", m, spread(ours), spread(c.floors[m])))
				}
			}
		}
	}
	if len(rows) > 0 {
		c.table("| what | ours | the floor", rows)
	}
}

func (c *comparison) table(head string, rows []string) {
	c.print("\n%s |\n%s|", head, strings.Repeat("|---", strings.Count(head, "|")))
	for _, row := range rows {
		c.print("%s |", row)
	}
}

// spread is the median of runs, and the lowest and the highest of them. What the floor cannot have is no number.
func spread(runs []float64) string {
	runs = slices.DeleteFunc(slices.Clone(runs), math.IsNaN)
	if len(runs) == 0 {
		return ""
	}
	if slices.Min(runs) == slices.Max(runs) {
		return digits(runs[0])
	}
	return fmt.Sprintf("%s (%s–%s)", digits(median(runs)), digits(slices.Min(runs)), digits(slices.Max(runs)))
}

// digits are three of a number, and all that stand before its point.
func digits(v float64) string {
	switch a := math.Abs(v); {
	case math.IsInf(a, 0):
		return "∞"
	case a >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case a >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}
