package author

import (
	"fmt"
	"time"

	"policy-service/pdp"
	"policy-service/pdp/internal/command/cli"
	"policy-service/pdp/internal/latency"
)

// benchReport is the output of bench --json. Programs read it: members may be added, never renamed. Times are in
// nanoseconds.
type benchReport struct {
	Bundle      string            `json:"bundle"`
	Policies    int               `json:"policies"`
	Requests    int               `json:"requests"`
	Outcomes    outcomes          `json:"outcomes"`
	Concurrency int               `json:"concurrency"`
	Took        time.Duration     `json:"took_ns"`
	Decisions   uint64            `json:"decisions"`
	PerSecond   float64           `json:"decisions_per_second"`
	Allocations float64           `json:"allocations_per_decision"`
	Bytes       float64           `json:"bytes_per_decision"`
	Latency     latency.Quantiles `json:"latency_ns"`
	Costs       []benchPolicyCost `json:"policy_costs"`
}

type benchPolicyCost struct {
	pdp.PolicyInfo
	// Requests is how many requests the policy was put to, of a thousand at most.
	Requests int           `json:"requests"`
	Each     time.Duration `json:"each_ns"`
	// Share is of the time that evaluating all policies takes, from 0 to 1.
	Share float64 `json:"share"`
}

func (b *bench) report(bundle *pdp.Bundle, c Bench) benchReport {
	count := b.times.Count()
	per := func(before, after uint64) float64 { return float64(after-before) / float64(count) }
	r := benchReport{
		Bundle:      bundle.Digest(),
		Policies:    len(bundle.Policies()),
		Requests:    len(b.calls),
		Outcomes:    b.outcomes,
		Concurrency: c.Concurrency,
		Took:        b.took,
		Decisions:   count,
		PerSecond:   float64(count) / b.took.Seconds(),
		Allocations: per(b.memory[0].Mallocs, b.memory[1].Mallocs),
		Bytes:       per(b.memory[0].TotalAlloc, b.memory[1].TotalAlloc),
		Latency:     b.times.Quantiles(),
		Costs:       []benchPolicyCost{},
	}
	var all time.Duration
	for _, p := range b.costs {
		all += p.Total
	}
	for _, p := range b.costs {
		r.Costs = append(r.Costs, benchPolicyCost{
			PolicyInfo: p.PolicyInfo,
			Requests:   p.Requests,
			Each:       p.Total / time.Duration(p.Requests),
			Share:      float64(p.Total) / float64(max(all, 1)),
		})
	}
	return r
}

// print is the report for people.
func (r benchReport) print(s cli.Streams, dir string) {
	s.Print("bundle     %s, policies: %d", dir, r.Policies)
	s.Print("requests   %d: %s", r.Requests, r.Outcomes)
	s.Print("asked by   %d at once, for %v", r.Concurrency, r.Took.Round(time.Millisecond))
	s.Print("decisions  %.0f a second, each with %.0f allocations of %.0f bytes together",
		r.PerSecond, r.Allocations, r.Bytes)
	s.Print("latency    %s", r.Latency)
	s.Print("")
	s.Print("policies that cost most, each evaluated by itself")
	s.Print("%7s  %9s  %9s  policy", "share", "each", "requests")
	for _, p := range r.Costs[:min(len(r.Costs), dearest)] {
		s.Print("%6.1f%%  %9s  %9d  %s (%s)", 100*p.Share, latency.Short(p.Each), p.Requests, p.ID, p.Position)
	}
	if more := len(r.Costs) - dearest; more > 0 {
		s.Print("and %d more; --json has them all", more)
	}
	if len(r.Costs) == 0 {
		s.Print("no policy's scope fits any of the requests")
	}
}

// dearest is how many policies the report for people shows.
const dearest = 10

// String is the outcomes in words that people read.
func (o outcomes) String() string {
	text := fmt.Sprintf("%d allow", o.Allow)
	if o.Obliging > 0 {
		text += fmt.Sprintf(" (%d with obligations)", o.Obliging)
	}
	text += fmt.Sprintf(", %d deny", o.Deny)
	if o.Possible+o.Impossible > 0 {
		text += fmt.Sprintf(", %d possible, %d impossible", o.Possible, o.Impossible)
	}
	return text + cli.Counts(" (", o.Reasons, ")")
}
