package mcp_test

import (
	"testing"

	"policy-service/pdp/mcp"
	"policy-service/pdp/mcp/mcptest"
)

func TestTrySuite(t *testing.T) {
	others := mcptest.Install(t)
	e := mcptest.BuildEverything(t)
	for i, r := range revisions {
		for _, era := range []string{"legacy", "modern"} {
			t.Run(r.revision+"/"+era, func(t *testing.T) {
				_ = i
				direct := others.Conformance(t, e.Start(t, r.sessions), r.revision)
				at, _ := through(t, passage{name: "everything", command: e.Command(), change: func(c *mcp.Config) {
					u := c.Upstreams["everything"]
					u.Eras = []string{era}
					c.Upstreams["everything"] = u
				}})
				judge(t, direct, others.Conformance(t, at, r.revision), nil)
			})
		}
	}
}
