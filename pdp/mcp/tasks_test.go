package mcp_test

import (
	"strings"
	"testing"

	"policy-service/pdp/mcp/mcptest"
)

// A tool that can be called by tasks alone is neither listed nor called while the gateway passes no tasks on; another that can
// be called by them is.
func TestNoToolThatCannotBeCalled(t *testing.T) {
	t.Parallel()
	s := newSiege(t, camp{answers: mcptest.Answers{Tools: `[{"name":"plain","inputSchema":{"type":"object"}},
		{"name":"by-task","inputSchema":{"type":"object"},"execution":{"taskSupport":"required"}},
		{"name":"either","inputSchema":{"type":"object"},"execution":{"taskSupport":"optional"}},
		{"name":"never","inputSchema":{"type":"object"},"execution":{"taskSupport":"forbidden"}}]`}})
	for _, era := range eras {
		v := s.visitor(era, nil)
		list := v.ask("tools/list", `{}`)
		for name, there := range map[string]bool{"plain": true, "by-task": false, "either": true, "never": true} {
			got := v.call(name, `{}`)
			if strings.Contains(string(list.result), `"`+name+`"`) != there || got.ran() != there || !there && got.code() != -32602 {
				t.Errorf("%s, %s: %s, of %s", era, name, got, list)
			}
		}
	}
}
