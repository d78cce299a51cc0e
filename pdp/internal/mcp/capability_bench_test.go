package mcp_test

import (
	"testing"
	"time"

	"policy-service/pdp/internal/mcp"
	"policy-service/pdp/pdptest/bound"
)

// A call with a capability costs less than 2.25 calls without: what the client, the gateway, the PDP, its log and the server
// compute for it, with no way between them, on which a call would spend most of its time. The proof is verified twice. The holder
// makes its proofs before.
func BenchmarkCallWithCapability(b *testing.B) {
	w := newVault(b, land{
		change: func(c *mcp.Config) { c.Limits.Rate, c.Limits.Burst = 1e6, 1e6 },
		files:  map[string]string{"free.cedar": `@id("bench") permit (principal is agent, action == Action::"tool.invoke", resource == tool::"rec:free");`},
	})
	p := w.grant("agent-release", 1, nil, "free")
	with, without := w.visitor("modern", nil), w.visitor("modern", nil)
	const arguments, calls = `{"n":1}`, 100
	var passes, times bound.Passes
	for b.Loop() {
		proofs := make([]string, calls)
		for n := range proofs {
			proofs[n] = p.proof("free", arguments)
		}
		began, begun := time.Now(), bound.CPU(b)
		for n := range calls {
			if got := without.call("free", arguments); n == 0 && !got.ran() {
				b.Fatal(got)
			}
		}
		middle, between := time.Now(), bound.CPU(b)
		for n, proof := range proofs {
			if got := with.shows(p.token, proof).call("free", arguments); n == 0 && !got.ran() {
				b.Fatal(got)
			}
		}
		times.Against(time.Since(middle), middle.Sub(began))
		passes.Against(bound.CPU(b)-between, between-begun)
	}
	b.ReportMetric(times.Median(), "of-its-time")
	bound.Check(b, passes.Median(), "of-a-call", 2.25)
}
