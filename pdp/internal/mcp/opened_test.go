package mcp_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"policy-service/pdp/internal/mcp"
	"policy-service/pdp/internal/server/config"
	"policy-service/pdp/pdptest/mcptest"
	"policy-service/pdp/pdptest/night"
)

// may are things that one may do at a server: what a policy permits of them, and how they are done.
var may = []struct{ permits, method, params string }{
	{`action == Action::"tool.invoke", resource == tool::"rec:look")`, "tools/call", `{"name":"look","arguments":{}}`},
	{`action == Action::"tool.invoke", resource is tool) when { resource has labels && resource.labels has kind && resource.labels.kind == "money" }`, "tools/call", `{"name":"pay","arguments":{"amount":1}}`},
	{`action == Action::"tool.invoke", resource) when { context has arguments && context.arguments has to && context.arguments.to == "carol" }`, "tools/call", `{"name":"send","arguments":{"to":"carol"}}`},
	{`action == Action::"read", resource == customer::"c1")`, "tools/call", `{"name":"crm","arguments":{"id":"c1"}}`},
	{`action == Action::"tool.invoke", resource == tool::"rec:new")`, "tools/call", `{"name":"new","arguments":{}}`},
	{`action == Action::"resources/read", resource == resource::"mem://notes")`, "resources/read", `{"uri":"mem://notes"}`},
	{`action == Action::"resources/list", resource)`, "resources/list", `{}`},
	{`action == Action::"prompts/get", resource == prompt::"greet")`, "prompts/get", `{"name":"greet"}`},
}

// openedSiege has a server at which alice may do all, and "bob N" what the bits of N say of may. Alice has
// seen its tools before it had the one that is new.
func openedSiege(t *testing.T, program bool) *siege {
	t.Helper()
	var newer atomic.Bool
	const mapping = `{"evaluation":{"subject":{"type":"agent","id":"$token.client_id"},"action":{"name":"read"},"resource":{"type":"customer","id":"$params.arguments.id"}}}`
	var all bytes.Buffer
	all.WriteString(`permit(principal, action in [Action::"initialize", Action::"server/discover", Action::"tools/list"], resource); permit(principal == agent::"alice", action, resource);`)
	for n := range 1 << len(may) {
		for bit, what := range may {
			if n>>bit&1 == 1 {
				fmt.Fprintf(&all, "permit(principal == agent::%q, %s;\n", bob(n), what.permits)
			}
		}
	}
	s := newSiege(t, camp{
		policies: map[string]string{"all.cedar": all.String()}, program: program,
		answers: mcptest.Answers{Tools: definitions("look", "pay", "send", "crm", "new"), Handle: func(c *mcptest.Call) bool {
			if c.Method != "tools/list" || newer.Load() {
				return false
			}
			c.Result(`{"resultType":"complete","ttlMs":0,"cacheScope":"private","tools":` + definitions("look", "pay", "send", "crm") + `}`)
			return true
		}},
		change: func(c *mcp.Config) {
			ofServer(func(u *mcp.UpstreamConfig) {
				u.Tools = map[string]mcp.ToolConfig{"pay": {Labels: map[string]string{"kind": "money"}}}
			})(c)
			if !program { // a tool whose mapping needs arguments is for all who may list tools
				c.Mappings = map[string]config.Object{"tools/call rec:crm": config.Object(mapping)}
			}
		},
	})
	if got := s.visitor("modern", as("alice")).ask("tools/list", `{}`); !strings.Contains(got.text, `"crm"`) || strings.Contains(got.text, `"new"`) {
		t.Fatal(got)
	}
	newer.Store(true)
	return s
}

func bob(n int) string { return fmt.Sprintf("bob %d", n) }

func as(who string) mcptest.Claims { return mcptest.Claims{"sub": who, "client_id": who} }

// A server is never closed to somebody of whom something would be permitted there, whatever the policy says it by.
func TestNoServerIsClosedToWhomItIsPermitted(t *testing.T) {
	t.Parallel()
	s := openedSiege(t, false)
	if got := s.visitor("legacy", as(bob(1<<4))).call("new", `{}`); !got.ran() { // nobody has seen it
		t.Error(got)
	}
	random := rand.New(rand.NewPCG(50, 3))
	some := random.Perm(1 << len(may))[:night.Cases(24)]
	for bit := range may {
		some = append(some, 1<<bit)
	}
	for _, n := range some {
		for bit, what := range may {
			for _, era := range eras {
				v := s.visitor(era, as(bob(n)))
				v.capabilities = fmt.Sprintf(`{"experimental":{"%d":{}}}`, bit) // as another client
				if got := v.ask(what.method, what.params); (got.code() == 0) != (n>>bit&1 == 1) {
					t.Errorf("%s, %s asks first for %s %s: %s", bob(n), era, what.method, what.params, got)
				}
			}
		}
		v := s.visitor("modern", as(bob(n)))
		v.capabilities = `{"experimental":{"list":{}}}`
		list := v.ask("tools/list", `{}`)
		for bit, name := range []string{"look", "pay", "send", "crm", "new"} {
			if name != "crm" && strings.Contains(list.text, `"name":"`+name+`"`) != (n>>bit&1 == 1 || n>>2&1 == 1) {
				t.Errorf("%s, %s: %s", bob(n), name, list)
			}
		}
	}
}

// Who may do nothing at a server has nothing done there, whatever their client calls itself: no program is started, and
// nothing of the client is told.
func TestNothingHappensWhereNothingIsPermitted(t *testing.T) {
	t.Parallel()
	s := openedSiege(t, true)
	before := len(s.rec.Got())
	for n := range 20 {
		for _, era := range eras {
			v := s.visitor(era, mcptest.Claims{"sub": "mallory", "client_id": fmt.Sprint("client ", n)})
			v.meta = fmt.Sprintf(`,"ours":%d`, n)
			for _, tool := range []string{"look", "new", "unheard"} {
				if got := v.call(tool, `{"id":"c1"}`); got.code() == 0 {
					t.Errorf("%s: %s", era, got)
				}
			}
			if got := v.ask("tools/list", `{}`); got.code() != 0 || !strings.Contains(got.text, `"tools":[]`) {
				t.Errorf("%s: %s", era, got)
			}
			if got := v.ask("resources/read", `{"uri":"mem://notes"}`); got.code() == 0 {
				t.Errorf("%s: %s", era, got)
			}
		}
	}
	if got := s.rec.Got()[before:]; len(got) > 0 {
		t.Errorf("the server got %d messages, the first is %s", len(got), got[0].Body)
	}
	denied := slices.DeleteFunc(s.records(), func(r loggedLine) bool { return r.Request.Action.Name != "tool.invoke" || r.Decision })
	if len(denied) < 40 {
		t.Errorf("%d denied calls are on record", len(denied))
	}
}
