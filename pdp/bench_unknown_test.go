package pdp

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"policy-service/evaluation"
)

// manyTools are about as many as a gateway lists.
const manyTools = 200

// toolsOf is a bundle of tools, each with a permit that reads arguments; some forbids read them for every tool.
func toolsOf(b *testing.B) *PDP {
	b.Helper()
	var text strings.Builder
	for n := range manyTools {
		fmt.Fprintf(&text, "@id(\"p%d\") permit (principal, action == Action::\"tool.invoke\", resource == tool::\"t%d\") when { context.arguments.amount < %d && principal.level > 1 };\n", n, n, n)
	}
	for n := range 10 {
		fmt.Fprintf(&text, "@id(\"f%d\") forbid (principal, action, resource is tool) when { context has arguments && context.arguments has path && context.arguments.path like \"/etc/%d*\" };\n", n, n)
	}
	text.WriteString("@id(\"impact\") forbid (principal, action, resource is tool) when { resource has impact && resource.impact == \"write\" && !context.pdp.approved };\n")
	bundle := bundleFrom(b, FS(fstest.MapFS{"p.cedar": {Data: []byte(text.String())}}))
	return Of(bundle, Options{NewID: func() string { return "0" }})
}

// toolsBatch asks about every tool. defaults are the members that the items inherit.
func toolsBatch(b *testing.B, defaults map[string]any) evaluation.Batch {
	b.Helper()
	defaults["subject"] = map[string]any{"type": "user", "id": "alice", "properties": map[string]any{"level": 2}}
	defaults["action"] = map[string]any{"name": "tool.invoke"}
	var items []any
	for n := range manyTools {
		items = append(items, map[string]any{"resource": map[string]any{"type": "tool", "id": fmt.Sprint("t", n), "properties": map[string]any{"impact": []string{"read", "write"}[n%2]}}})
	}
	defaults["evaluations"] = items
	body, err := json.Marshal(defaults)
	must(b, err)
	batch, err := evaluation.DecodeBatch(body, "", evaluation.DefaultLimits())
	must(b, err)
	return batch
}

// How long does a batch about 200 tools take, if it asks what is possible with any arguments, and if the arguments are
// there?
func BenchmarkBatchOf200ByUnknown(b *testing.B) {
	context := func() map[string]any {
		return map[string]any{"context": map[string]any{"arguments": map[string]any{"amount": 1}, "session": strings.Repeat("x", 1000)}}
	}
	known, unknown := context(), context()
	unknown["options"] = map[string]any{"unknown": []string{"/context/arguments", "/context/pdp/approved", "/context/pdp/capability"}}
	for _, tt := range []struct {
		name     string
		defaults map[string]any
		most     int
	}{{"known", known, manyTools / 2}, {"unknown", unknown, manyTools}} {
		b.Run(tt.name, func(b *testing.B) {
			p, batch := toolsOf(b), toolsBatch(b, tt.defaults)
			b.ReportAllocs()
			for b.Loop() {
				answer, err := p.EvaluateBatch(b.Context(), BatchCall{Batch: batch})
				allows := 0
				for _, d := range answer.Items {
					if d.Allow || d.Possible == evaluation.Possible {
						allows++
					}
				}
				if err != nil || allows < tt.most*9/10 || allows > tt.most {
					b.Fatal(allows, err)
				}
			}
		})
	}
}
