package pdp

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"policy-service/evaluation"
	"policy-service/pdp/internal/bundle"
	"policy-service/pdp/pdptest/bound"
)

// Each of so many owners of tools declares so many rules: a third of exact names, a third of beginnings of names, and a
// third that are over after a while.
const (
	toolOwners  = 100
	rulesOfEach = 10
)

func declarations() fstest.MapFS {
	files := fstest.MapFS{}
	for owner := range toolOwners {
		text := "mode: allowlist\nrules:\n"
		for n := range rulesOfEach {
			text += fmt.Sprintf("  - {agent: agent-%d, tools: %s}\n", (owner+n)%50, []string{
				fmt.Sprintf("[read_%d, list_%d, find_%d]", n, n, n),
				fmt.Sprintf("[read_%d, write_%d_*]", n, n),
				fmt.Sprintf("[do_%d], expires: 2030-01-02T03:04:05Z", n),
			}[n%3])
		}
		files[fmt.Sprintf("access/server-%d.yaml", owner)] = &fstest.MapFile{Data: []byte(text)}
	}
	return files
}

// byHand are the policies that the declarations are made into as an author would have written them: all of them, or the
// rules alone, without the guards that close what no rule opens.
func byHand(b *testing.B, declared *Bundle, guards bool) fstest.MapFS {
	b.Helper()
	files := fstest.MapFS{}
	for n, a := range declared.Access() {
		text, guard, ok := strings.Cut(a.Cedar, `@id("access.`+a.Owner+`.guard")`)
		if !ok || !strings.Contains(guard, "forbid") || strings.Contains(guard, "permit") {
			b.Fatalf("the guard does not come last:\n%s", a.Cedar)
		}
		if guards {
			text = a.Cedar
		}
		files[fmt.Sprintf("p%d.cedar", n)] = &fstest.MapFile{Data: []byte(text)}
	}
	return files
}

func toolCalls() (calls []Call) {
	for n := range manyRequests {
		owner, rule := n%toolOwners, n/7%rulesOfEach
		tool := fmt.Sprintf(map[bool]string{true: "write_%d_file", false: "read_%d"}[rule%3 == 1], rule)
		if rule%3 == 2 {
			tool = fmt.Sprintf("do_%d", rule)
		}
		calls = append(calls, Call{Now: time.Unix(1_700_000_000, 0), Request: evaluation.Request{
			Tenant: evaluation.DefaultTenant, Action: evaluation.Action{Name: "tool.invoke"},
			Subject:  evaluation.Entity{Type: "agent", ID: fmt.Sprintf("agent-%d", (owner+rule+n%2)%50)}, // every other one has a rule
			Resource: evaluation.Entity{Type: "tool", ID: fmt.Sprintf("server-%d:%s", owner, tool)},
		}})
	}
	return calls
}

func toolOffice(b *testing.B, files fstest.MapFS) *office {
	b.Helper()
	loaded, problems := Load(FS(files))
	if problems.Refuse() {
		b.Fatal(problems)
	}
	w := &office{files: files, bundle: loaded, pdp: Of(loaded, Options{NewID: func() string { return "0" }}), calls: toolCalls()}
	allows := 0
	for _, call := range w.calls {
		if w.decide(b, call).Allow {
			allows++
		}
	}
	if allows < manyRequests/10 || allows > manyRequests*9/10 {
		b.Fatalf("%d of %d requests are allowed: neither answer may be rare", allows, manyRequests)
	}
	return w
}

// How many times longer does a decision take over 100 declarations of 10 rules than over the same policies by hand? Both
// take turns. Without guards these are other policies: any permit elsewhere opens the tools. That says what guards cost.
func BenchmarkDecisionBy100DeclarationsOf10RulesAgainstPoliciesByHand(b *testing.B) {
	declared := toolOffice(b, declarations())
	for _, c := range []struct {
		name   string
		guards bool
	}{{"with guards", true}, {"without guards", false}} {
		b.Run(c.name, func(b *testing.B) {
			hand := toolOffice(b, byHand(b, declared.bundle, c.guards))
			var turns bound.Passes
			for i := 0; b.Loop(); i += 64 {
				ofHand := hand.turn(b, i)
				turns.Against(declared.turn(b, i), ofHand)
			}
			if c.guards {
				bound.Check(b, turns.Median(), "x-of-by-hand", 1.1)
			} else {
				b.ReportMetric(turns.Median(), "x-of-by-hand")
			}
			b.ReportMetric(declared.considered(), "considered/op")
			b.ReportMetric(hand.considered(), "considered-by-hand/op")
			b.ReportMetric(0, "ns/op") // an op is 64 decisions of each, which tells nothing
		})
	}
}

// How many times longer does it take to load the declarations than to load the same policies by hand?
func BenchmarkLoad100DeclarationsOf10RulesAgainstPoliciesByHand(b *testing.B) {
	declared := FS(declarations()).Read()
	loaded, _ := bundle.Build(declared)
	hand := FS(byHand(b, loaded, true)).Read()
	load := func(files *Files) time.Duration {
		start := time.Now()
		if _, problems := bundle.Build(files); problems.Refuse() {
			b.Fatal(problems)
		}
		return time.Since(start)
	}
	var turns, took bound.Passes
	for b.Loop() {
		ofHand := load(hand)
		ofDeclared := load(declared)
		turns.Against(ofDeclared, ofHand)
		took.Took(ofDeclared)
	}
	bound.Check(b, turns.Median(), "x-of-by-hand", 2)
	b.ReportMetric(took.Median(), "ms/load")
	b.ReportMetric(0, "ns/op")
}
