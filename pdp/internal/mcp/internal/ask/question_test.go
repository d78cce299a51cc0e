package ask_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"policy-service/evaluation"
	"policy-service/pdp/internal/mcp/internal/ask"
	"policy-service/pdp/internal/mcp/internal/identity"
	"policy-service/pdp/internal/mcp/toolschema"
)

var update = flag.Bool("update", false, "write the goldens")

// anything permits whatever is asked.
var anything = map[string]string{"a.cedar": `permit(principal, action, resource);`, "bundle.yaml": "allow_trivial: true\n"}

const jira = `{"name":"create_ticket","description":"Make a ticket","inputSchema":{"type":"object"},"annotations":{"destructiveHint":false,"title":"Create"},"authorization":{"required":true,"mode":"user_approval","timeout":300,"message":"This writes\nto Jira"}}`

// questions are one request of each method.
var questions = []struct{ method, params string }{
	{"initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}`},
	{"server/discover", `{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}`},
	{"tools/list", ``},
	{"tools/call", ``}, // see below
	{"resources/list", `{}`},
	{"resources/templates/list", `{}`},
	{"resources/read", `{"uri":"mem://notes"}`},
	{"resources/subscribe", `{"uri":"mem://notes"}`},
	{"resources/unsubscribe", `{"uri":"mem://notes"}`},
	{"subscriptions/listen", `{"notifications":{"toolsListChanged":true,"resourceSubscriptions":["mem://notes","mem://more"]}}`},
	{"prompts/list", `{"_meta":{"io.policy-service/purpose":"look","io.policy-service/context":{"workflow_id":"w"}}}`},
	{"prompts/get", `{"name":"summarise","arguments":{"a":"b"}}`},
	{"completion/complete", `{"ref":{"type":"ref/prompt","name":"summarise"},"argument":{"name":"a","value":"b"}}`},
	{"logging/setLevel", `{"level":"debug"}`},
}

// everything is one request of each method; and where tools can be requested, a request, and its fulfilment by carol.
func (s *stage) everything(p *identity.Principal) (all []ask.Operation) {
	s.t.Helper()
	const arguments = `{"summary":"down","assignee":null}`
	tool := s.tool(jira, map[string]string{"impact": "write"})
	for _, q := range questions {
		op := request(p, q.method, q.params)
		if q.method == "tools/call" {
			op = s.call(p, tool, arguments)
		}
		all = append(all, op)
	}
	if s.Requests() {
		all = append(all, s.requested(p, tool, arguments, `,"reason":"for maintenance"`), s.fulfilled(himself(s.t, "carol"), p, tool, arguments))
	}
	return all
}

// Each question as the PDP has it in its decision log, in each way of asking.
func TestQuestions(t *testing.T) {
	t.Parallel()
	var got strings.Builder
	for _, mode := range []struct {
		name string
		who  func(testing.TB) *identity.Principal
		set  func(*ask.Options)
	}{
		{"tool.invoke", alice, func(*ask.Options) {}},
		{"tool.invoke, no agent", func(t testing.TB) *identity.Principal { return himself(t, "bob") }, func(*ask.Options) {}},
		{"tool", alice, func(o *ask.Options) { o.Ask = ask.ByTool }},
		{"coaz", alice, func(o *ask.Options) { o.Ask = ask.COAZ }},
		{"coaz, strict", alice, func(o *ask.Options) { o.Ask, o.Strict = ask.COAZ, true }},
	} {
		s := open(t, anything, mode.set)
		want := 0
		for _, op := range s.everything(mode.who(t)) {
			forgotten := op.Method == "initialize" || op.Method == "server/discover" || op.Method == "subscriptions/listen" || op.Method == "resources/templates/list"
			outcome, refusal := s.outcome(op)
			if strict := mode.name == "coaz, strict" && forgotten; (outcome == "permit") == strict || refusal != nil && refusal.Code != -32001 {
				t.Errorf("%s, %s: %s", mode.name, op.Method, outcome)
			} else if !strict {
				want++
			}
		}
		got.WriteString("# " + mode.name + "\n")
		records := s.records("decision")
		for _, r := range records {
			got.WriteString(text(t, undeclared(r["request"].(map[string]any))) + "\n")
		}
		if len(records) < want {
			t.Errorf("%s: %d records of %d requests", mode.name, len(records), want)
		}
	}
	const file = "testdata/questions.golden"
	if *update {
		must(t, os.WriteFile(file, []byte(got.String()), 0o600))
	}
	golden, err := os.ReadFile(file)
	must(t, err)
	if diff := cmp.Diff(string(golden), got.String()); diff != "" {
		t.Error(diff)
	}
}

// The subject and its context, by the claims of the token.
func TestSpeaker(t *testing.T) {
	t.Parallel()
	s := open(t, anything)
	tool := s.tool(plainTool, nil)
	person := evaluation.PersonOf("https://idp.example.com", "alice")
	agent, user := identity.Entity{Type: "agent", ID: "bot"}, identity.Entity{Type: "user", ID: "alice"}
	for name, test := range map[string]struct {
		p                identity.Principal
		subject, context string
	}{
		"an agent for a person":   {identity.Principal{Agent: agent, User: user, Person: person}, `{"type":"agent","id":"bot"}`, `{"on_behalf_of":[{"id":"alice","type":"user"}],"person":"` + person + `"`},
		"a person":                {identity.Principal{User: user, Person: person}, `{"type":"user","id":"alice"}`, `{"person":"` + person + `"`},
		"an agent alone":          {identity.Principal{Agent: agent, User: identity.Entity{Type: "user", ID: "bot"}}, `{"type":"agent","id":"bot"}`, `{"supported`},
		"nobody knows who":        {identity.Principal{Agent: agent, User: user}, `{"type":"agent","id":"bot"}`, `{"on_behalf_of":[{"id":"alice","type":"user"}],"supported`},
		"an agent between":        {identity.Principal{Agent: agent, User: user, Claims: parsed(t, `{"act":{"sub":"bot","act":{"sub":"first"}}}`)}, `{"type":"agent","id":"bot"}`, `{"on_behalf_of":[{"id":"first","type":"agent"},{"id":"alice","type":"user"}]`},
		"a person, by an agent":   {identity.Principal{User: user, Claims: parsed(t, `{"act":{"sub":"bot"}}`)}, `{"type":"user","id":"alice"}`, `{"on_behalf_of":[{"id":"bot","type":"agent"}]`},
		"with what policies read": {identity.Principal{User: user, Claims: parsed(t, `{"roles":["a",null],"department_id":null,"iss":"x"}`)}, `{"type":"user","id":"alice","properties":{"roles":["a",null]}}`, `{"supported`},
	} {
		got, _ := s.outcome(s.call(&test.p, tool, ``))
		bodies := s.taken()
		if got != "permit" || len(bodies) != 1 || !strings.Contains(bodies[0], `{"subject":`+test.subject+`,"action"`) || !strings.Contains(bodies[0], `"context":`+test.context) {
			t.Errorf("%s: %s, %q", name, got, bodies)
		}
	}
}

const typedTool = `{"name":"transfer","annotations":{"title":"Transfer","destructiveHint":true},"authorization":{"required":true,"timeout":5},"inputSchema":{"type":"object",
	"properties":{"amount":{"type":"number","multipleOf":0.01},"to":{"type":"string"},"when":{"type":"string","format":"date-time"},"tags":{"type":"array","items":{"type":"string"}},"note":{"type":["string","null"]},"free":{}},
	"required":["amount","to","note"]}}`

// typedStage is a PDP with the schema of some tools, which permits by their arguments.
func typedStage(t *testing.T) *stage {
	t.Helper()
	jiraTool := toolschema.Tool{Server: "jira-server-1", Name: "create_ticket", Definition: parsed(t, jira)}
	transfer := toolschema.Tool{Server: "jira-server-1", Name: "transfer", Definition: parsed(t, typedTool)}
	s, err := toolschema.Generate([]toolschema.Tool{transfer, jiraTool}, toolschema.Options{Whole: true, Labels: []string{"impact"}, Said: []string{"workflow_id"}})
	must(t, err)
	return open(t, map[string]string{"tools.cedarschema": s.Text, "a.cedar": `
		@id("session") permit(principal, action, resource) unless { action in Action::"tool.invoke" };
		@id("tickets") permit(principal, action == Action::"jira-server-1:create_ticket", resource) when { resource has labels && resource.labels has impact && resource.labels.impact == "write" };
		@id("small") permit(principal == agent::"orchestrator", action == Action::"jira-server-1:transfer", resource)
			when { context.arguments.amount.lessThan(decimal("100.0")) && context.arguments.to != "nobody" };
		@id("past") forbid(principal, action == Action::"jira-server-1:transfer", resource)
			when { context.arguments has when && context.arguments.when < context.pdp.now };
		@id("tagged") forbid(principal, action == Action::"jira-server-1:transfer", resource) when { context.arguments has tags && context.arguments.tags.contains("stop") };
		@id("noted") forbid(principal, action == Action::"jira-server-1:transfer", resource) when { context.arguments has note && context.arguments.note like "*secret*" };`},
		func(o *ask.Options) { o.Ask = ask.ByTool })
}

// The schema of all that a gateway asks about fits all that it asks about.
func TestTypedQuestions(t *testing.T) {
	t.Parallel()
	s := typedStage(t)
	for _, op := range s.everything(alice(t)) {
		if got, _ := s.outcome(op); got != "permit" {
			t.Errorf("%s: %s", op.Method, got)
		}
	}
}

// Policies decide about arguments as they are, by their types.
func TestTypedArguments(t *testing.T) {
	t.Parallel()
	s := typedStage(t)
	tool := s.tool(typedTool, nil)
	const ok = "permit"
	for _, test := range []struct{ arguments, want string }{
		{`{"amount":99.99,"to":"a","note":null}`, ok},
		{`{"amount":9.999e1,"to":"a","note":"x"}`, ok},
		{`{"amount":100,"to":"a","note":null}`, "denied"},
		{`{"amount":1,"to":"nobody","note":null}`, "denied"},
		{`{"amount":1,"to":"a","note":"a secret"}`, "denied"},
		{`{"amount":1,"to":"a","note":null,"tags":["go"]}`, ok},
		{`{"amount":1,"to":"a","note":null,"tags":["go","stop"]}`, "denied"},
		{`{"amount":1,"to":"a","note":null,"when":"2001-01-01T00:00:00Z"}`, "denied"},
		{`{"amount":1,"to":"a","note":null,"when":"2999-01-01T00:00:00.000Z"}`, ok},
		{`{"amount":1,"to":"a","note":null,"when":"2999-01-01T00:00:00+02:00"}`, "denied"}, // takes less
		{`{"amount":1,"to":"a","note":null,"free":[null,{"a":1.5}]}`, ok},                  // left out
		{`{"amount":0.12345,"to":"a","note":null}`, "denied"},                              // no call that the tool permits
		{`{"amount":"1","to":"a","note":null}`, "denied"},
		{`{"to":"a","note":null}`, "denied"},
	} {
		got, refusal := s.outcome(s.call(alice(t), tool, test.arguments, `,"_meta":{"io.policy-service/purpose":"p","io.policy-service/context":{"workflow_id":"w","other":{"a":[1]}}}`))
		if (got == ok) != (test.want == ok) || refusal != nil && refusal.Code != -32001 {
			t.Errorf("%s: %s", test.arguments, got)
		}
	}
}

// A list shows the tools that some arguments permit, where a schema requires some.
func TestTypedList(t *testing.T) {
	t.Parallel()
	s := typedStage(t)
	items := []ask.Item{{Tool: s.tool(typedTool, nil)}, {Tool: s.tool(jira, nil)}, {Tool: s.tool(jira, map[string]string{"impact": "write"})}, {Tool: s.tool(`{"name":"new"}`, nil)}}
	s.lists("tools/list", "[true false true false]", items...)
	asked := strings.Join(s.taken(), "")
	if !strings.Contains(asked, `"jira-server-1:transfer"`) {
		t.Errorf("asked %s", asked)
	}
}

// Many at once: each is decided by its own arguments, and owes its own obligations.
func TestAtOnce(t *testing.T) {
	t.Parallel()
	s := open(t, map[string]string{"a.cedar": `@id("even") permit(principal, action == Action::"tool.invoke", resource) when { context.arguments.even };
		@id("mask") @obligation("mask") permit(principal, action == Action::"tool.invoke", resource) when { context.arguments.mask };
		@id("declared") permit(principal, action == Action::"read", resource);`,
		"obligations.yaml": "mask: {type: redact, properties: {fields: [/ssn]}}\n"})
	tool := s.tool(declares("a", `{"evaluation":{"action":{"name":"read"},"resource":{"type":"x","id":"$params.arguments.id"}}}`), map[string]string{"a": "b"})
	items := []ask.Item{{Tool: tool}, {Tool: tool}}
	var group sync.WaitGroup
	for n := range 8 {
		group.Go(func() {
			for i := range 12 {
				even, mask := (n+i)%2 == 0, i%3 == 0
				p, refusal := s.Ask(t.Context(), s.call(alice(t), tool, fmt.Sprintf(`{"id":"%d-%d","even":%v,"mask":%v}`, n, i, even, mask)))
				if (p != nil) != (even || mask) {
					t.Errorf("%d-%d: %+v", n, i, refusal)
				}
				if p == nil {
					continue
				}
				m, refusal := p.Result(result(`{"structuredContent":{"ssn":"123-45-6789"}}`))
				if refusal != nil || strings.Contains(string(m.Result), "123") == mask {
					t.Errorf("%d-%d: %s, %+v", n, i, m.Result, refusal)
				}
				p.Done(t.Context())
				if keep, refusal := s.Filter(t.Context(), request(alice(t), "tools/list", ``), items); refusal != nil || !keep[0] || !keep[1] {
					t.Errorf("%v, %+v", keep, refusal)
				}
			}
		})
	}
	group.Wait()
}
