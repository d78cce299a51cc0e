package pdp

import (
	"maps"
	"slices"
	"testing"
	"testing/fstest"
	"time"

	"policy-service/pdp/pdptest/bound"
)

// How many times longer does a deny take if a policy sees capabilities? It is asked once more then, as that of a call that
// holds one. Where no policy does, it is asked once.
func BenchmarkDenySeesCapabilities(b *testing.B) {
	office := officeOf(b, 1000, 10_000)
	with := func(condition string) *PDP {
		files := maps.Clone(office.files)
		files["more.cedar"] = &fstest.MapFile{Data: []byte(`@id("more") forbid (principal, action, resource) when { ` + condition + ` };`)}
		return Of(bundleFrom(b, FS(files)), Options{NewID: func() string { return "0" }})
	}
	none, sees := with("context.pdp.approved"), with("context.pdp.capability.held")
	denied := slices.DeleteFunc(slices.Clone(office.calls), func(c Call) bool { return office.decide(b, c).Allow })
	turn := func(p *PDP, from int) time.Duration {
		start := time.Now()
		for i := range 64 {
			if d, err := p.Evaluate(b.Context(), denied[(from+i)%len(denied)]); err != nil || d.Allow {
				b.Fatal(d, err)
			}
		}
		return time.Since(start)
	}
	var turns bound.Passes
	b.ReportAllocs()
	for i := 0; b.Loop(); i += 64 {
		once := turn(none, i)
		turns.Against(turn(sees, i), once)
	}
	bound.Check(b, turns.Median(), "x-of-once", 2.1)
	b.ReportMetric(0, "ns/op") // an op is 64 decisions of each, which tells nothing
}
