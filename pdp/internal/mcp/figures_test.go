package mcp_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"policy-service/pdp/internal/mcp"
	"policy-service/pdp/internal/server/config"
	"policy-service/pdp/pdptest/mcptest"
)

const figureAudience = "https://mcp.example.com"

// figureSiege is a gateway in front of the upstream up, of one era, with one tool. Tokens are for audience, and asked has the
// questions to the PDP.
func figureSiege(t *testing.T, era, tool, audience string, policies map[string]string, change func(*mcp.Config)) (s *siege, asked *explainPDP) {
	t.Helper()
	asked = &explainPDP{}
	return newSiege(t, camp{
		policies: policies, answers: mcptest.Answers{Eras: []string{era}, Tools: "[" + tool + "]"}, deps: mcp.Deps{Transport: asked},
		change: func(c *mcp.Config) {
			c.Resource, c.Identity.Issuers[0].Audience = figureAudience, audience
			c.Upstreams = map[string]mcp.UpstreamConfig{"up": c.Upstreams["rec"]}
			change(c)
		},
	}), asked
}

// questions are those since the last call.
func (a *explainPDP) questions(t testing.TB) (all []map[string]any) {
	for _, one := range a.take() {
		_, body, _ := strings.Cut(one, " ")
		all = append(all, question(t, body))
	}
	return all
}

// question is a question in JSON without the members that a PEP adds about itself.
func question(t testing.TB, text string) map[string]any {
	var q map[string]any
	if err := json.Unmarshal([]byte(text), &q); err != nil {
		t.Errorf("%s: %v", text, err)
		return nil
	}
	delete(q, "options")
	all := []any{q}
	if items, ok := q["evaluations"].([]any); ok {
		all = append(all, items...)
	}
	for _, one := range all {
		holder := one.(map[string]any)
		if context, ok := holder["context"].(map[string]any); ok {
			delete(context, "supported_obligations")
			delete(context, "supported_mandatory_extensions")
			if len(context) == 0 {
				delete(holder, "context")
			}
		}
	}
	return q
}

// claims are those of a token that has the given ones, and otherwise only those that every token must have.
func claims(given map[string]any) mcptest.Claims {
	c := mcptest.Claims{"client_id": nil, "jti": nil, "iat": nil}
	for name, v := range given {
		if name != "iss" && name != "exp" { // which are the issuer's
			c[name] = v
		}
	}
	return c
}

// withoutModern are the methods that only the legacy era has.
var withoutModern = []string{"initialize", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"}

// The PDP gets each figure of the profiles, and the example of the older dialect, from a running gateway where declared
// mappings count instead.
func TestFigures(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../../evaluation/coaz/testdata/figures/*.txtar")
	orFail(t, err)
	tried := 0
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		orFail(t, err)
		parts := map[string]string{}
		for _, f := range archive.Files {
			parts[f.Name] = string(f.Data)
		}
		var operation struct {
			Method string
			Params json.RawMessage
			Token  map[string]any
		}
		orFail(t, json.Unmarshal([]byte(parts["operation.json"]), &operation))
		if parts["mapping.json"] != "" || strings.HasPrefix(operation.Method, "tasks/") {
			continue // a mapping of no method of MCP, or of tasks, which are denied
		}
		params := "{}"
		if operation.Params != nil && operation.Method != "resources/list" { // whose cursor would be none of ours
			params = string(operation.Params)
		}
		tried++
		for _, era := range eras {
			if era == "modern" && slices.Contains(withoutModern, operation.Method) {
				continue
			}
			t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar")+", "+era, func(t *testing.T) {
				t.Parallel()
				figure(t, era, parts, operation.Method, params, operation.Token)
			})
		}
	}
	if tried < 15 {
		t.Errorf("%d figures were tried", tried)
	}
}

func figure(t *testing.T, era string, parts map[string]string, method, params string, token map[string]any) {
	tool := parts["tool.json"]
	if tool == "" {
		var called struct{ Name string }
		orFail(t, json.Unmarshal([]byte(params), &called))
		tool = fmt.Sprintf(`{"name":%q,"inputSchema":{"type":"object"}}`, called.Name)
	}
	audience, named := token["aud"].(string)
	if !named {
		audience = figureAudience
	}
	s, asked := figureSiege(t, era, tool, audience, nil, func(c *mcp.Config) {
		c.Ask, c.Strict, c.Declared = mcp.AskCOAZ, true, mcp.DeclaredInstead
		c.Mappings = map[string]config.Object{"initialize": config.Object(`{"evaluation":{"subject":{"type":"identity","id":"$token.sub"},"action":{"name":"initialize"},` +
			`"resource":{"type":"mcp_server","id":"$server.resource"},"context":{"agent":"$token.?client_id","protocol_version":"$params.protocolVersion"}}}`)}
	})
	is := claims(token)
	if is["aud"] == nil {
		is["aud"] = audience
	}
	v := s.stranger(era, s.issuer.Token(t, is))
	if method != "initialize" {
		v.begin()
	}
	asked.take()
	if got := v.ask(method, params); !got.ran() {
		t.Fatalf("the answer is %s", got)
	}
	questions := asked.questions(t)
	if len(questions) != 1 {
		t.Fatalf("asked %v", questions)
	}
	if diff := cmp.Diff(question(t, parts["evaluation.json"]+parts["evaluations.json"]), questions[0]); diff != "" {
		t.Errorf("the question is another than the printed one (-printed +ours):\n%s", diff)
	}
	if method == "tools/call" && !slices.Contains(s.executed(), method) {
		t.Error("the call has not arrived")
	}
}

// A printed request for a tool's invocation stands in the decision log, member for member, when the tool was called.
func TestPrintedRequest(t *testing.T) {
	t.Parallel()
	for _, era := range eras {
		s, _ := figureSiege(t, era, `{"name":"create_ticket","inputSchema":{"type":"object"}}`, figureAudience, nil, func(c *mcp.Config) {
			u := c.Upstreams["up"]
			u.Labels = map[string]string{"integration": "jira", "impact": "read"}
			u.Tools = map[string]mcp.ToolConfig{"create_ticket": {Labels: map[string]string{"category": "sensitive", "impact": "write"}}}
			c.Upstreams = map[string]mcp.UpstreamConfig{"jira-server-1": u}
		})
		v := s.visitor(era, mcptest.Claims{"aud": figureAudience, "client_id": "agent-workflow-123", "roles": []string{"workflow_orchestrator"}, "department_id": "dept-eng"})
		v.meta = `,"io.policy-service/purpose":"Resolve user issue #555","io.policy-service/context":{"workflow_id":"wf-abc","agent_invocation_id":"inv-789","param_summary":"Creating ticket for server outage"}`
		if got := v.call("create_ticket", `{"summary":"down"}`); !got.ran() {
			t.Fatalf("%s: %s", era, got)
		}
		printed := map[string]any{
			"tenant":   "default",
			"subject":  map[string]any{"type": "agent", "id": "agent-workflow-123", "properties": map[string]any{"roles": []any{"workflow_orchestrator"}, "department_id": "dept-eng"}},
			"action":   map[string]any{"name": "tool.invoke"},
			"resource": map[string]any{"type": "tool", "id": "jira-server-1:create_ticket", "labels": map[string]any{"category": "sensitive", "integration": "jira", "impact": "write"}},
			"purpose":  "Resolve user issue #555",
			"context":  map[string]any{"workflow_id": "wf-abc", "agent_invocation_id": "inv-789", "param_summary": "Creating ticket for server outage"},
		}
		if diff := cmp.Diff(printed, loggedCall(t, s)); diff != "" {
			t.Errorf("%s (-printed +logged):\n%s", era, diff)
		}
	}
}

// loggedCall is the one question about a call in the decision log, of which the members are taken that the specification prints.
func loggedCall(t *testing.T, s *siege) map[string]any {
	t.Helper()
	var found []map[string]any
	for _, r := range s.records() {
		var line struct {
			Tenant  string
			Request json.RawMessage
		}
		orFail(t, json.Unmarshal([]byte(r.line), &line))
		if r.Request.Action.Name != "tool.invoke" || r.Kind == "possible" {
			continue
		}
		q := question(t, string(line.Request))
		resource, context := q["resource"].(map[string]any), q["context"].(map[string]any)
		resource["labels"] = resource["properties"].(map[string]any)["labels"]
		delete(resource, "properties")
		q["tenant"], q["purpose"] = line.Tenant, context["purpose"]
		for _, ours := range []string{"purpose", "on_behalf_of", "person", "arguments"} {
			if context[ours] == nil {
				t.Errorf("the context has no %s", ours)
			}
			delete(context, ours)
		}
		found = append(found, q)
	}
	if len(found) != 1 {
		t.Fatalf("%d questions about a call are on record", len(found))
	}
	return found[0]
}

// The tool of the older dialect's example asks the printed question, and is refused by the printed code.
func TestOlderDialect(t *testing.T) {
	t.Parallel()
	archive, err := txtar.ParseFile("../../../evaluation/coaz/testdata/figures/sep-example.txtar")
	orFail(t, err)
	const audience = "http://agentprovider.com/agent-app-id"
	for _, era := range eras {
		s, asked := figureSiege(t, era, string(archive.Files[0].Data), audience, map[string]string{"a.cedar": `permit(principal == user::"alice@example.com", action == Action::"get_customer", resource == customer::"cust-12345") when { context.case == "case-67890" && context.agent == "` + audience + `" };
			permit(principal, action, resource == tool::"up:get_customer");
			permit(principal, action == Action::"initialize", resource);`}, func(*mcp.Config) {})
		v := s.visitor(era, claims(map[string]any{"sub": "alice@example.com", "aud": audience}))
		for _, call := range []struct {
			arguments   string
			code, asked int
		}{
			{`{"id":"cust-12345","case":"case-67890"}`, 0, 2},
			{`{"id":"cust-1","case":"case-67890"}`, -32401, 1},
			{`{"case":"case-67890"}`, -32602, 0},
		} {
			asked.take()
			got := v.call("get_customer", call.arguments)
			questions := slices.DeleteFunc(asked.questions(t), func(q map[string]any) bool { return q["evaluations"] != nil }) // whether the server may be opened at all
			if got.code() != call.code || len(questions) != call.asked {
				t.Fatalf("%s, %s: %s, asked %v", era, call.arguments, got, questions)
			}
			if call.code == 0 {
				delete(questions[0]["context"].(map[string]any), "declared") // which says that the server asks
				if diff := cmp.Diff(question(t, string(archive.Files[2].Data)), questions[0]); diff != "" {
					t.Errorf("%s (-printed +ours):\n%s", era, diff)
				}
			}
		}
		if called := slices.DeleteFunc(s.executed(), func(method string) bool { return method != "tools/call" }); len(called) != 1 {
			t.Errorf("%s: %d calls have arrived", era, len(called))
		}
	}
}
