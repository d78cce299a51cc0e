package pdp

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"policy-service/evaluation"
	"policy-service/pdp/pdptest/bound"
)

// ownersOf is a bundle in which each of so many owners opens ten tools, by the beginnings of their names, and closes all
// others of its own.
func ownersOf(b *testing.B, owners int) *PDP {
	b.Helper()
	const scope = `(principal%s, action == Action::"tool.invoke", resource is tool) when { context.pdp.resource.id like "owner-%d:*" }`
	files := fstest.MapFS{}
	for owner := range owners {
		var text, rules strings.Builder
		for rule := range 10 {
			like := fmt.Sprintf(`context.pdp.resource.id like "owner-%d:t%d_*"`, owner, rule)
			fmt.Fprintf(&text, "permit "+scope+" when { %s };\n", fmt.Sprintf(` == agent::"agent-%d"`, rule), owner, like)
			fmt.Fprintf(&rules, ` || principal == agent::"agent-%d" && %s`, rule, like)
		}
		fmt.Fprintf(&text, "forbid "+scope+" unless { %s };\n", "", owner, strings.TrimPrefix(rules.String(), " || "))
		files[fmt.Sprintf("owner-%d.cedar", owner)] = &fstest.MapFile{Data: []byte(text.String())}
	}
	bundle := bundleFrom(b, FS(files))
	return Of(bundle, Options{NewID: func() string { return "0" }})
}

// How many times longer does a decision take with 100 owners of ten rules and a guard each than with one? Both take turns.
func BenchmarkDecision100OwnersAgainst1(b *testing.B) {
	turn := func(p *PDP, from int) time.Duration {
		start := time.Now()
		for n := from; n < from+64; n++ {
			r := evaluation.Request{Tenant: evaluation.DefaultTenant, Action: evaluation.Action{Name: "tool.invoke"}}
			r.Subject = evaluation.Entity{Type: "agent", ID: fmt.Sprintf("agent-%d", n%10)}
			r.Resource = evaluation.Entity{Type: "tool", ID: fmt.Sprintf("owner-0:t%d_x", n%20/2)}
			d, err := p.Evaluate(b.Context(), Call{Request: r, Now: time.Unix(1_700_000_000, 0)})
			if err != nil || d.Allow != (n%10 == n%20/2) || !d.Allow && len(d.Determining) != 1 {
				b.Fatal(d, err)
			}
		}
		return time.Since(start)
	}
	one, many := ownersOf(b, 1), ownersOf(b, 100)
	var turns bound.Passes
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		ofOne := turn(one, i)
		turns.Against(turn(many, i), ofOne)
	}
	bound.Check(b, turns.Median(), "x-of-1", 1.25)
	b.ReportMetric(0, "ns/op") // an op is 64 decisions of each, which tells nothing
}
