package ask_test

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"policy-service/pdp/mcp/internal/ask"
	"policy-service/pdp/mcp/internal/identity"
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
		for _, q := range questions {
			op := request(mode.who(t), q.method, q.params)
			if q.method == "tools/call" {
				op = s.call(mode.who(t), s.tool(jira, map[string]string{"impact": "write"}), `{"summary":"down","assignee":null}`)
			}
			forgotten := op.Method == "server/discover" || op.Method == "subscriptions/listen" || op.Method == "resources/templates/list"
			outcome, refusal := s.outcome(op)
			if strict := mode.name == "coaz, strict" && forgotten; (outcome == "permit") == strict || refusal != nil && refusal.Code != -32001 {
				t.Errorf("%s, %s: %s", mode.name, q.method, outcome)
			} else if !strict {
				want++
			}
		}
		if s.Requests() {
			tool := s.tool(jira, map[string]string{"impact": "write"})
			for _, op := range []ask.Operation{
				s.requested(mode.who(t), tool, `{"summary":"down","assignee":null}`, `,"reason":"for maintenance"`),
				s.fulfilled(himself(t, "carol"), mode.who(t), tool, `{"summary":"down","assignee":null}`),
			} {
				if outcome, _ := s.outcome(op); outcome != "permit" {
					t.Errorf("%s, %s: %s", mode.name, op.Method, outcome)
				}
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
		if err := os.WriteFile(file, []byte(got.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	golden, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(golden), got.String()); diff != "" {
		t.Error(diff)
	}
}
