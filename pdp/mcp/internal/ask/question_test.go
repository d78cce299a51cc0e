package ask_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"policy-service/pdp/mcp/internal/ask"
	"policy-service/pdp/mcp/internal/identity"
)

var update = flag.Bool("update", false, "write the goldens")

// anything permits whatever is asked.
var anything = map[string]string{"a.cedar": `permit(principal, action, resource);`, "bundle.yaml": "allow_trivial: true\n"}

const jira = `{"name":"create_ticket","description":"Make a ticket","inputSchema":{"type":"object"},"annotations":{"destructiveHint":false,"title":"Create"},"authorization":{"required":true,"mode":"user_approval","timeout":300,"message":"This writes\nto Jira"}}`

// 002 prints a request; it stands in the decision log, member for member, after a call of the tool.
func TestPrintedRequest(t *testing.T) {
	t.Parallel()
	s := open(t, anything)
	tool := s.tool(jira, map[string]string{"category": "sensitive", "integration": "jira", "impact": "write"})
	p := alice(t)
	p.Agent.ID, p.Client = "agent-workflow-123", "agent-workflow-123"
	got, _ := s.outcome(s.call(p, tool, `{"summary":"down","assignee":null}`, `,"_meta":{"io.policy-service/purpose":"Resolve user issue #555",
		"io.policy-service/context":{"workflow_id":"wf-abc","agent_invocation_id":"inv-789","param_summary":"Creating ticket for server outage"},"traceparent":"x"}`))
	records := s.records("decision")
	if got != "permit" || len(records) != 1 {
		t.Fatalf("%s, %d records", got, len(records))
	}
	q := undeclared(records[0]["request"].(map[string]any))
	subject, of, said := q["subject"].(map[string]any), q["resource"].(map[string]any), q["context"].(map[string]any)
	actor := subject["properties"].(map[string]any)
	actor["actor_id"], actor["actor_type"] = subject["id"], subject["type"]
	properties := of["properties"].(map[string]any)
	purpose := said["purpose"]
	for _, name := range []string{"purpose", "on_behalf_of", "person", "arguments"} {
		if said[name] == nil {
			t.Errorf("the context has no %s", name)
		}
		delete(said, name)
	}
	printed := anyOf(t, `{"actor":{"actor_id":"agent-workflow-123","actor_type":"agent","roles":["workflow_orchestrator"],"department_id":"dept-eng"},"action":"tool.invoke",
		"resource":{"type":"tool","id":"jira-server-1:create_ticket","labels":{"category":"sensitive","integration":"jira","impact":"write"}},"purpose":"Resolve user issue #555",
		"context":{"workflow_id":"wf-abc","agent_invocation_id":"inv-789","param_summary":"Creating ticket for server outage"}}`)
	logged := map[string]any{"actor": actor, "action": q["action"].(map[string]any)["name"], "purpose": purpose, "context": said,
		"resource": map[string]any{"type": of["type"], "id": of["id"], "labels": properties["labels"]}}
	if diff := cmp.Diff(printed, logged); diff != "" || records[0]["tenant"] != "default" {
		t.Errorf("-printed +logged:\n%s", diff)
	}
}

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

// Each figure of the profiles, and the example of 003, is what the PDP gets where declared mappings count instead.
func TestFigures(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../../../evaluation/coaz/testdata/figures/*.txtar")
	if err != nil || len(files) < 24 {
		t.Fatalf("%d figures, %v", len(files), err)
	}
	tried := 0
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			parts := map[string]string{}
			for _, f := range archive.Files {
				parts[f.Name] = string(f.Data)
			}
			var operation struct {
				Method string         `json:"method"`
				Params jsontext.Value `json:"params"`
				Token  jsontext.Value `json:"token"`
			}
			unmarshal(t, parts["operation.json"], &operation)
			if parts["mapping.json"] != "" || strings.HasPrefix(operation.Method, "tasks/") {
				return // a mapping of no method of MCP, or of tasks, which are denied
			}
			tried++
			s := open(t, anything, func(o *ask.Options) {
				o.Ask, o.Strict, o.Declared = ask.COAZ, true, ask.Instead
				o.Resource = "https://mcp.example.com"
				if strings.HasPrefix(filepath.Base(file), "sep-") {
					o.Resource = "http://agentprovider.com/agent-app-id" // which its token has for the audience
				}
			})
			p := himself(t, "alice@example.com")
			p.Claims = parsed(t, string(operation.Token))
			op := request(p, operation.Method, string(operation.Params))
			if operation.Method == "tools/call" {
				definition := parts["tool.json"]
				var called struct{ Name string }
				unmarshal(t, string(operation.Params), &called)
				if definition == "" {
					definition = `{"name":"` + called.Name + `","inputSchema":{}}`
				}
				if op.Tool, err = s.Tool("srv", called.Name, jsontext.Value(definition), nil); err != nil {
					t.Fatal(err)
				}
			}
			if got, _ := s.outcome(op); got != "permit" {
				t.Fatal(got)
			}
			want := parts["evaluation.json"] + parts["evaluations.json"]
			bodies := s.taken()
			if len(bodies) != 1 {
				t.Fatalf("asked %q", bodies)
			}
			got := anyOf(t, bodies[0])
			delete(got, "options") // how a batch ends is between PEP and PDP
			if diff := cmp.Diff(undeclared(anyOf(t, want)), got); diff != "" {
				t.Errorf("-printed +asked:\n%s", diff)
			}
		})
	}
	if tried < 15 {
		t.Errorf("%d figures were tried", tried)
	}
}
