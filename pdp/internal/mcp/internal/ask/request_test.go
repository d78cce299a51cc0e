package ask_test

import (
	"strings"
	"testing"

	"policy-service/pdp/internal/mcp/internal/ask"
	"policy-service/pdp/internal/mcp/internal/era"
	"policy-service/pdp/internal/mcp/internal/identity"
)

// requested is a request for a tool.
func (s *stage) requested(p *identity.Principal, tool *ask.Tool, arguments string, more ...string) ask.Operation {
	op := s.call(p, tool, arguments, more...)
	op.Method = "tools/request"
	return op
}

// fulfilled is a call that fulfils the request of another.
func (s *stage) fulfilled(p, of *identity.Principal, tool *ask.Tool, arguments string, more ...string) ask.Operation {
	op := s.call(p, tool, arguments, more...)
	op.Requester = of
	return op
}

// asked are the questions that one request of a client has the PDP asked, each as action, subject, the chain and the requester.
func (s *stage) asked(op ask.Operation) (all []string) {
	s.t.Helper()
	s.taken()
	_, _ = s.outcome(op)
	for _, body := range s.taken() {
		q := anyOf(s.t, body)
		context, _ := q["context"].(map[string]any)
		one := q["action"].(map[string]any)["name"].(string) + " " + nameOf(q["subject"])
		for _, e := range listOf(context["on_behalf_of"]) {
			one += " for " + nameOf(e)
		}
		if context["requester"] != nil {
			one += ", " + nameOf(context["requester"]) + " requests"
		}
		all = append(all, one)
	}
	return all
}

func nameOf(v any) string {
	e := v.(map[string]any)
	return e["type"].(string) + "/" + e["id"].(string)
}

func listOf(v any) []any {
	all, _ := v.([]any)
	return all
}

// A request for a tool is one question of its own; a fulfilment is two, with all who take part in each. What the server declares
// is asked of who calls, and of nobody else.
func TestRequestQuestions(t *testing.T) {
	t.Parallel()
	declares := strings.Replace(jira, `{"type":"object"}`, `{"type":"object","x-authzen-mapping":{"evaluation":{"action":{"name":"own"},"resource":{"type":"x","id":"y"}}}}`, 1)
	for _, mode := range []struct {
		name                 string
		set                  func(*ask.Options)
		invoke               string
		definition           string
		declared, noQuestion bool
	}{
		{"tool.invoke", func(*ask.Options) {}, "tool.invoke", jira, false, false},
		{"tool", func(o *ask.Options) { o.Ask = ask.ByTool }, "jira-server-1:create_ticket", jira, false, false},
		{"declared", func(*ask.Options) {}, "tool.invoke", declares, true, false},
		{"declared alone", func(o *ask.Options) { o.Declared = ask.Instead }, "", declares, true, false},
	} {
		s := open(t, anything, mode.set)
		tool := s.tool(mode.definition, nil)
		bob, a := himself(t, "bob"), alice(t)
		if got, want := strings.Join(s.asked(s.requested(a, tool, `{}`)), "; "), "tool.request agent/orchestrator for user/alice"; got != want {
			t.Errorf("%s: a request asks %q", mode.name, got)
		}
		for _, of := range []struct {
			who, of      *identity.Principal
			fulfil, call string
		}{
			{bob, a, "tool.fulfil user/bob for agent/orchestrator for user/alice, agent/orchestrator requests", " user/bob for user/alice, agent/orchestrator requests"},
			{a, bob, "tool.fulfil agent/orchestrator for user/alice for user/bob, user/bob requests", " agent/orchestrator for user/alice, user/bob requests"},
			{himself(t, "alice"), a, "tool.fulfil user/alice for agent/orchestrator, agent/orchestrator requests", " user/alice, agent/orchestrator requests"},
		} {
			want := of.fulfil
			if mode.declared {
				want = "own identity/" + of.who.Subject + "; " + want
			}
			if mode.invoke != "" {
				want += "; " + mode.invoke + of.call
			}
			if got := strings.Join(s.asked(s.fulfilled(of.who, of.of, tool, `{}`)), "; "); got != want {
				t.Errorf("%s: a fulfilment asks\n%s, and it should be\n%s", mode.name, got, want)
			}
		}
	}
}

// What a requester says of why is in the question, as a text and from one place.
func TestRequestReason(t *testing.T) {
	t.Parallel()
	s := open(t, map[string]string{"a.cedar": `permit (principal, action == Action::"tool.request", resource) when { context.reason == "for maintenance" };`, "bundle.yaml": "allow_trivial: true\n"})
	tool := s.tool(jira, nil)
	for more, want := range map[string]string{
		`,"reason":"for maintenance"`:                   "permit",
		`,"reason":null`:                                "Access denied",
		`,"reason":"for fun"`:                           "Access denied",
		`,"reason":7`:                                   "no question can be made of this call of shown__create_ticket: /params/reason",
		`,"reason":"` + strings.Repeat("x", 3000) + `"`: "no question can be made of this call of shown__create_ticket: /params/reason",
		`,"_meta":{"io.policy-service/context":{"reason":"for maintenance"}}`:                             "no question can be made of this call of shown__create_ticket: /params/_meta",
		`,"reason":"for maintenance","_meta":{"io.policy-service/context":{"requester":{"type":"user"}}}`: "no question can be made of this call of shown__create_ticket: /params/_meta",
	} {
		if got, _ := s.outcome(s.requested(alice(t), tool, `{}`, more)); !strings.Contains(got, want) {
			t.Errorf("%s: %s, and it should be %s", more, got, want)
		}
	}
	if got, _ := s.outcome(s.call(alice(t), tool, `{}`, `,"_meta":{"io.policy-service/context":{"requester":{"type":"user","id":"bob"}}}`)); !strings.Contains(got, "no client sets") {
		t.Errorf("a client says who requests: %s", got)
	}
}

// Nobody is asked for approval of a request, or of whether one may fulfil it; of the call itself people are.
func TestRequestApprovals(t *testing.T) {
	t.Parallel()
	s := people(t)
	for _, action := range []string{"tool.request", "tool.fulfil", "tool.invoke"} {
		op := s.fulfilled(himself(t, "bob"), alice(t), s.a, `{"of":"`+action+`"}`)
		if action == "tool.request" {
			op = s.requested(alice(t), s.a, `{"of":"tool.request"}`)
		}
		_, refusal := s.outcome(op)
		if refusal == nil || (refusal.Wanted != nil) != (action == "tool.invoke") || refusal.Kind != ask.Denied {
			t.Errorf("%s: %+v", action, refusal)
		}
	}
}

// By the letter of the binding, and by its defaults, there are no such requests, and no mapping makes some.
func TestRequestUnknown(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]func(*ask.Options){
		"coaz": func(o *ask.Options) { o.Ask = ask.COAZ }, "strict": func(o *ask.Options) { o.Strict = true },
	} {
		for _, e := range []era.Era{era.Legacy, era.Modern} {
			s := open(t, anything, set)
			op := s.requested(alice(t), s.tool(jira, nil), `{}`)
			op.Era = e
			if got, refusal := s.outcome(op); refusal == nil || refusal.Kind != ask.Unknown || s.Requests() {
				t.Errorf("%s: %s", name, got)
			}
		}
	}
	s := open(t, anything)
	if _, err := ask.New(ask.Options{PDP: s.clients(), Resource: resource, Mappings: mapped(t, map[string]string{"tools/request": `{"subject":{"type":"'user'","id":"token.sub"}}`})}); err == nil {
		t.Error("an operator has a mapping for tools/request")
	}
}

// Who may request what they may not call is told so; lists show it. Who is told that somebody requests a tool is found out
// without any consequence.
func TestRequestPossible(t *testing.T) {
	t.Parallel()
	s := open(t, map[string]string{"bundle.yaml": "allow_trivial: true\n", "a.cedar": `
		permit (principal, action == Action::"tool.request", resource) when { context.arguments.summary == "down" };
		permit (principal == user::"bob", action == Action::"tool.fulfil", resource) when { context.requester.id == "orchestrator" };`})
	tool := s.tool(jira, nil)
	for arguments, want := range map[string]string{`{"summary":"down"}`: "call tools/request", `{"summary":"up"}`: ""} {
		op := s.call(alice(t), tool, arguments)
		op.MCPx = true
		_, refusal := s.outcome(op)
		if refusal == nil || strings.Contains(string(refusal.Data), "call tools/request") != (want != "") {
			t.Errorf("%s: %+v", arguments, refusal)
		}
	}
	items := []ask.Item{{Tool: tool, Server: tool.Server}}
	list := request(alice(t), "tools/list", `{}`)
	if keep, refusal := s.Filter(t.Context(), list, items); refusal != nil || keep[0] {
		t.Errorf("it may be called: %v %+v", keep, refusal)
	}
	if keep, refusal := s.FilterRequests(t.Context(), list, items); refusal != nil || !keep[0] {
		t.Errorf("it may not be requested: %v %+v", keep, refusal)
	}
	s.taken()
	for name, want := range map[string]bool{"bob": true, "eve": false} {
		if may, refusal := s.MayFulfil(t.Context(), s.fulfilled(himself(t, name), alice(t), tool, `{"summary":"down"}`)); refusal != nil || may != want {
			t.Errorf("%s: %t %+v", name, may, refusal)
		}
	}
	if asked := strings.Join(s.taken(), " "); asked == "" || strings.Contains(asked, `"supported_`) {
		t.Errorf("a kept answer depends on declarations: %s", asked)
	}
}
