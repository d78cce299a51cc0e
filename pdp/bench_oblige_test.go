package pdp

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"policy-service/evaluation"
	"policy-service/pdp/internal/bundle"
)

// What do obligations add to a decision, by how many come?
func BenchmarkObligations(b *testing.B) {
	for _, n := range []int{0, 1, 3, 10, 100} {
		b.Run(fmt.Sprintf("%d", n), func(b *testing.B) {
			var names []string
			var definitions strings.Builder
			for i := range n {
				names = append(names, fmt.Sprintf("o%d", i))
				fmt.Fprintf(&definitions, "o%d: {type: notification, properties: {to: '%d', body: '${principal.id} did ${action.name}'}}\n", i, i)
			}
			annotation := ""
			if n > 0 {
				annotation = "@obligation(" + bundle.Quote(strings.Join(names, ",")) + ")"
			}
			bundle, problems := Load(FS(obliging(annotation+` permit(principal is user, action == Action::"read", resource is doc);`, definitions.String()+"other: {type: log}")))
			if bundle == nil {
				b.Fatal(problems)
			}
			request, err := evaluation.DecodeAuthZEN([]byte(`{"subject":{"type":"user","id":"a"},"action":{"name":"read"},"resource":{"type":"doc","id":"1"},"context":{"supported_obligations":["notification"]}}`), "", evaluation.DefaultLimits())
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				d, err := decideBy(context.Background(), bundle, Call{Request: request, Now: propertyTime})
				if err != nil || !d.Allow || len(d.Obligations) != n {
					b.Fatal(d, err)
				}
			}
		})
	}
}

// obliging is a bundle of policies and an obligations.yaml.
func obliging(policies, definitions string) fstest.MapFS {
	return fstest.MapFS{"p.cedar": {Data: []byte(policies)}, "obligations.yaml": {Data: []byte(definitions)}}
}
