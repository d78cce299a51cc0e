package mcp_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"policy-service/pdp/mcp"
	"policy-service/pdp/mcp/mcptest"
)

// alike is an answer without the id of the request.
func alike(a echo) string {
	_, rest, _ := strings.Cut(a.text, `"error":`)
	return rest
}

// A tool that was there when it was listed is not there when it is called: it is not called. One that appears is listed
// before it is.
func TestToolsThatComeAndGo(t *testing.T) {
	t.Parallel()
	for _, era := range eras {
		var after atomic.Bool
		s := newSiege(t, camp{
			change: func(c *mcp.Config) { c.List.Cache = time.Millisecond },
			answers: mcptest.Answers{Handle: func(c *mcptest.Call) bool {
				if c.Method != "tools/list" {
					return false
				}
				tool := "first"
				if after.Load() {
					tool = "second"
				}
				return lists(c, `"tools":`+definitions(tool))
			}},
		})
		v := s.visitor(era, nil)
		unknown := v.call("second", `{}`)
		if got := v.call("first", `{}`); !got.ran() || unknown.code() != -32602 {
			t.Errorf("%s: %s and %s", era, got, unknown)
		}
		after.Store(true)
		mcptest.Until(t, "the first tool is gone", func() bool { return v.call("first", `{}`).code() == -32602 })
		if got := v.call("first", `{}`); alike(got) != alike(unknown) {
			t.Errorf("%s: %s", era, got)
		}
		v.call("second", `{}`).runs(t, era)
	}
}
