package ask_test

import (
	"strings"
	"testing"

	"policy-service/pdp/mcp/internal/ask"
	"policy-service/pdp/mcp/toolschema"
)

const typedTool = `{"name":"transfer","annotations":{"title":"Transfer","destructiveHint":true},"authorization":{"required":true,"timeout":5},"inputSchema":{"type":"object",
	"properties":{"amount":{"type":"number","multipleOf":0.01},"to":{"type":"string"},"when":{"type":"string","format":"date-time"},"tags":{"type":"array","items":{"type":"string"}},"note":{"type":["string","null"]},"free":{}},
	"required":["amount","to","note"]}}`

// typedStage is a PDP with the schema of some tools, which permits by their arguments.
func typedStage(t *testing.T) *stage {
	t.Helper()
	jiraTool := toolschema.Tool{Server: "jira-server-1", Name: "create_ticket", Definition: parsed(t, jira)}
	transfer := toolschema.Tool{Server: "jira-server-1", Name: "transfer", Definition: parsed(t, typedTool)}
	s, err := toolschema.Generate([]toolschema.Tool{transfer, jiraTool}, toolschema.Options{Whole: true, Labels: []string{"impact"}, Said: []string{"workflow_id"}})
	if err != nil {
		t.Fatal(err)
	}
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
	for _, q := range questions {
		op := request(alice(t), q.method, q.params)
		if q.method == "tools/call" {
			op = s.call(alice(t), s.tool(jira, map[string]string{"impact": "write"}), `{"summary":"down","assignee":null}`)
		}
		if got, _ := s.outcome(op); got != "permit" {
			t.Errorf("%s: %s", q.method, got)
		}
	}
	tool := s.tool(jira, map[string]string{"impact": "write"})
	for _, op := range []ask.Operation{
		s.requested(alice(t), tool, `{"summary":"down","assignee":null}`, `,"reason":"for maintenance"`),
		s.fulfilled(himself(t, "bob"), alice(t), tool, `{"summary":"down","assignee":null}`),
	} {
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
