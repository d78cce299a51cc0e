package mcp_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"policy-service/pdp/mcp"
	"policy-service/pdp/mcp/mcptest"
)

const withHidden = `[{"name":"look","inputSchema":{"type":"object"}},{"name":"change","inputSchema":{"type":"object"}},
{"name":"hidden","inputSchema":{"type":"object"}},{"name":"broken","inputSchema":{"type":"object","x-authzen-mapping":{}}},
{"name":"twice","inputSchema":{"type":"object"}},{"name":"twice","description":"other","inputSchema":{"type":"object"}}]`

// Who may not look at a tool does not learn that there is one; who may not call it is told so. No way leads round.
func TestHiddenDeniedAndNonexistent(t *testing.T) {
	t.Parallel()
	for _, era := range eras {
		s := newSiege(t, camp{
			policies: map[string]string{"a.cedar": `permit(principal, action, resource);
				@reason_user("Not for you.") forbid(principal, action == Action::"tool.invoke", resource == tool::"rec:change");
				forbid(principal, action, resource == resource::"ui://change");`},
			answers: mcptest.Answers{Tools: withHidden},
			change:  ofServer(func(u *mcp.UpstreamConfig) { u.Tools = map[string]mcp.ToolConfig{"hidden": {Hidden: true}} }),
		})
		v := s.visitor(era, nil)
		listed := v.ask("tools/list", `{}`)
		if !strings.Contains(listed.text, `"look"`) || listed.fault != nil {
			t.Fatalf("%s: %s", era, listed)
		}
		for _, name := range []string{"change", "hidden", "broken", "twice"} {
			if strings.Contains(listed.text, `"`+name+`"`) {
				t.Errorf("%s: %s is listed: %s", era, name, listed)
			}
		}
		unknown := v.call("nonexistent", `{}`)
		if unknown.code() != -32602 || unknown.kind() != "tool_call_blocked" {
			t.Errorf("%s: %s", era, unknown)
		}
		for _, name := range []string{"hidden", "broken", "twice", "Look", "lo\\u006fk2", "rec:look", "rec__look", "lооk", "../look"} {
			for _, arguments := range []string{`{}`, `{"a":1}`} {
				got := v.call(name, arguments)
				if got.status != unknown.status || alike(got) != alike(unknown) {
					t.Errorf("%s: %q is told apart: %s, and %s", era, name, got, unknown)
				}
			}
		}
		denied := v.call("change", `{}`)
		if denied.code() != -32001 || denied.kind() != "tool_call_blocked" || !strings.Contains(denied.text, `"reason":"Not for you."`) || denied.status != http.StatusOK {
			t.Errorf("%s: %s", era, denied)
		}
		for method, params := range map[string]string{
			"resources/read": `{"uri":"ui://change"}`,
			"tools/list":     `{"cursor":"2"}`,
			"prompts/list":   `{"cursor":"MjA="}`,
			"resources/list": `{"cursor":""}`,
		} {
			if got := v.ask(method, params); got.fault == nil || got.result != nil {
				t.Errorf("%s: %s: %s", era, method, got)
			}
		}
		s.untouched(t)
	}
}

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
