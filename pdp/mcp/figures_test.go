package mcp_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"policy-service/pdp/decisionlog"
	"policy-service/pdp/mcp"
	"policy-service/pdp/mcp/mcptest"
	"policy-service/pdp/pdptest"
	pdpserver "policy-service/pdp/server"
)

// passed is a running gateway between a client, a PDP and an upstream that keeps what it gets.
type passed struct {
	t        testing.TB
	url      string
	issuer   *mcptest.Issuer
	upstream *mcptest.Recorder
	pdp      *pdptest.Server
	data     string

	mu    sync.Mutex
	asked []map[string]any
}

// RoundTrip keeps what the PDP is asked, without what a PEP says there of itself.
func (p *passed) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	p.asked = append(p.asked, question(p.t, string(body)))
	p.mu.Unlock()
	r.Body = io.NopCloser(bytes.NewReader(body))
	return http.DefaultTransport.RoundTrip(r)
}

// taken are the questions since the last call.
func (p *passed) taken() []map[string]any {
	p.mu.Lock()
	defer p.mu.Unlock()
	taken := p.asked
	p.asked = nil
	return taken
}

// question is a question in JSON without what a PEP says of itself, not of the operation.
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
			if len(context) == 0 {
				delete(holder, "context")
			}
		}
	}
	return q
}

// pass starts a gateway before an upstream of an era, which has one tool. Tokens are for audience.
func pass(t testing.TB, era string, bundle map[string]string, tool, audience string, change func(*mcp.Config)) *passed {
	t.Helper()
	p := &passed{t: t, issuer: mcptest.NewIssuer(t, audience, time.Now), data: mcptest.QuickDir(t)}
	p.pdp = pdptest.Start(t, pdptest.Bundle(bundle), open, func(c *pdpserver.Config) { c.Data = p.data })
	p.upstream = mcptest.NewRecorder(t, mcptest.Answers{Eras: []string{era}, Tools: "[" + tool + "]"})
	c := mcp.Config{
		Listen: "127.0.0.1:0", Resource: "https://mcp.example.com", PDP: mcp.PDPConfig{URL: p.pdp.URL},
		Identity:  mcp.IdentityConfig{Issuers: []mcp.IssuerConfig{{Issuer: p.issuer.URL, Audience: audience, Algorithms: []string{"ES256"}}}},
		Upstreams: map[string]mcp.UpstreamConfig{"up": {URL: p.upstream.URL, AllowNetworks: []string{"127.0.0.0/8"}}},
	}
	change(&c)
	g, err := mcp.New(t.Context(), c, mcp.Deps{Transport: p, Logger: slog.New(slog.NewTextHandler(&logged{t}, nil))})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(g.Handler())
	t.Cleanup(func() {
		s.Close()
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	p.url = s.URL + mcp.Endpoint
	return p
}

// said is what a client reads: a response, and the session that it is in.
type said struct {
	Result json.RawMessage
	Error  *struct {
		Code    int
		Message string
	}
	session string
}

// ask sends one request of an era, with these params.
func (p *passed) ask(era, session, token, method, params string) (got said) {
	p.t.Helper()
	headers := map[string]string{"Authorization": "Bearer " + token, "Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
	if era == "modern" {
		var of struct{ Name, URI string }
		if err := json.Unmarshal([]byte(params), &of); err != nil {
			p.t.Fatal(err)
		}
		headers["Mcp-Protocol-Version"], headers["Mcp-Method"] = "2026-07-28", method
		if name := of.Name + of.URI; name != "" {
			headers["Mcp-Name"] = name
		}
		meta := `"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}`
		if strings.Contains(params, `"_meta":{`) {
			params = strings.Replace(params, `"_meta":{`, `"_meta":{`+meta+",", 1)
		} else {
			params = strings.TrimSuffix(strings.TrimSpace(params), "}") + `,"_meta":{` + meta + `}}`
			params = strings.Replace(params, "{,", "{", 1)
		}
	} else if session != "" {
		headers["Mcp-Session-Id"] = session
	}
	r, err := http.NewRequestWithContext(p.t.Context(), http.MethodPost, p.url, strings.NewReader(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, method, params)))
	if err != nil {
		p.t.Fatal(err)
	}
	for name, v := range headers {
		r.Header.Set(name, v)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		p.t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err == nil {
		err = json.Unmarshal(text, &got)
	}
	if err != nil {
		p.t.Fatalf("%s, %s: %d %s: %v", era, method, answer.StatusCode, text, err)
	}
	got.session = answer.Header.Get("Mcp-Session-Id")
	return got
}

// begin begins a session, of the era that has one.
func (p *passed) begin(era, token string) (session string) {
	p.t.Helper()
	if era == "legacy" {
		session = p.ask(era, "", token, "initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}`).session
	}
	p.taken()
	return session
}

// claims are those of a token that has the given ones, and otherwise only what every token must have.
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

// Each figure of the profiles, and the example of the older dialect, is what the PDP gets of a running gateway where declared
// mappings count instead.
func TestFigures(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../evaluation/coaz/testdata/figures/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	tried := 0
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		parts := map[string]string{}
		for _, f := range archive.Files {
			parts[f.Name] = string(f.Data)
		}
		var operation struct {
			Method string
			Params json.RawMessage
			Token  map[string]any
		}
		if err := json.Unmarshal([]byte(parts["operation.json"]), &operation); err != nil {
			t.Fatal(err)
		}
		if parts["mapping.json"] != "" || strings.HasPrefix(operation.Method, "tasks/") {
			continue // a mapping of no method of MCP, or of tasks, which are denied
		}
		params := "{}"
		if operation.Params != nil && operation.Method != "resources/list" { // whose cursor would be none of ours
			params = string(operation.Params)
		}
		tried++
		for _, era := range []string{"legacy", "modern"} {
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
		if err := json.Unmarshal([]byte(params), &called); err != nil {
			t.Fatal(err)
		}
		tool = fmt.Sprintf(`{"name":%q,"inputSchema":{"type":"object"}}`, called.Name)
	}
	audience, _ := token["aud"].(string)
	if audience == "" {
		audience = "https://mcp.example.com"
	}
	everything := map[string]string{"a.cedar": `permit(principal, action, resource);`, "bundle.yaml": "allow_trivial: true\n"}
	p := pass(t, era, everything, tool, audience, func(c *mcp.Config) {
		c.Ask, c.Strict, c.Declared = mcp.AskCOAZ, true, mcp.DeclaredInstead
	})
	bearer := p.issuer.Token(t, claims(token))
	session := ""
	if method != "initialize" {
		session = p.begin(era, bearer)
	}
	if got := p.ask(era, session, bearer, method, params); got.Error != nil || got.Result == nil {
		t.Fatalf("the answer is %s, %+v", got.Result, got.Error)
	}
	asked := p.taken()
	if len(asked) != 1 {
		t.Fatalf("asked %v", asked)
	}
	if diff := cmp.Diff(question(t, parts["evaluation.json"]+parts["evaluations.json"]), asked[0]); diff != "" {
		t.Errorf("the question is another than the printed one (-printed +ours):\n%s", diff)
	}
	arrived := func(g mcptest.Got) bool { return g.Method == method }
	if method == "tools/call" && !slices.ContainsFunc(p.upstream.Executed(), arrived) {
		t.Error("the call has not arrived")
	}
}

// A printed request for a tool's invocation stands in the decision log, member for member, when the tool was called.
func TestPrintedRequest(t *testing.T) {
	t.Parallel()
	for _, era := range []string{"legacy", "modern"} {
		p := pass(t, era, map[string]string{"a.cedar": `permit(principal, action, resource);`, "bundle.yaml": "allow_trivial: true\n"},
			`{"name":"create_ticket","inputSchema":{"type":"object"}}`, "https://mcp.example.com", func(c *mcp.Config) {
				c.Upstreams["jira-server-1"] = c.Upstreams["up"]
				delete(c.Upstreams, "up")
				u := c.Upstreams["jira-server-1"]
				u.Labels = map[string]string{"integration": "jira", "impact": "read"}
				u.Tools = map[string]mcp.ToolConfig{"create_ticket": {Labels: map[string]string{"category": "sensitive", "impact": "write"}}}
				c.Upstreams["jira-server-1"] = u
			})
		bearer := p.issuer.Token(t, mcptest.Claims{"sub": "alice", "client_id": "agent-workflow-123", "roles": []string{"workflow_orchestrator"}, "department_id": "dept-eng"})
		got := p.ask(era, p.begin(era, bearer), bearer, "tools/call", `{"name":"create_ticket","arguments":{"summary":"down"},"_meta":{"io.policy-service/purpose":"Resolve user issue #555",
			"io.policy-service/context":{"workflow_id":"wf-abc","agent_invocation_id":"inv-789","param_summary":"Creating ticket for server outage"}}}`)
		if got.Error != nil {
			t.Fatalf("%s: %+v", era, got.Error)
		}
		logged := p.called()
		printed := map[string]any{
			"tenant":   "default",
			"subject":  map[string]any{"type": "agent", "id": "agent-workflow-123", "properties": map[string]any{"roles": []any{"workflow_orchestrator"}, "department_id": "dept-eng"}},
			"action":   map[string]any{"name": "tool.invoke"},
			"resource": map[string]any{"type": "tool", "id": "jira-server-1:create_ticket", "labels": map[string]any{"category": "sensitive", "integration": "jira", "impact": "write"}},
			"purpose":  "Resolve user issue #555",
			"context":  map[string]any{"workflow_id": "wf-abc", "agent_invocation_id": "inv-789", "param_summary": "Creating ticket for server outage"},
		}
		if diff := cmp.Diff(printed, logged); diff != "" {
			t.Errorf("%s (-printed +logged):\n%s", era, diff)
		}
	}
}

// called is the one question about a call in the decision log, of which the members are taken that the specification prints.
func (p *passed) called() map[string]any {
	p.t.Helper()
	if err := p.pdp.Stop(p.t.Context()); err != nil {
		p.t.Fatal(err)
	}
	log, err := decisionlog.OpenReader(p.data)
	if err != nil {
		p.t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	var found []map[string]any
	for record, err := range log.Records(p.t.Context(), 0, log.Size()) {
		var line struct {
			Tenant  string
			Request json.RawMessage
		}
		if err == nil {
			err = json.Unmarshal(record.Line, &line)
		}
		if err != nil {
			p.t.Fatal(err)
		}
		if !strings.Contains(string(line.Request), `"tool.invoke"`) {
			continue
		}
		q := question(p.t, string(line.Request))
		resource, context := q["resource"].(map[string]any), q["context"].(map[string]any)
		resource["labels"] = resource["properties"].(map[string]any)["labels"]
		delete(resource, "properties")
		q["tenant"], q["purpose"] = line.Tenant, context["purpose"]
		for _, ours := range []string{"purpose", "on_behalf_of", "person", "arguments"} {
			if context[ours] == nil {
				p.t.Errorf("the context has no %s", ours)
			}
			delete(context, ours)
		}
		found = append(found, q)
	}
	if len(found) != 1 {
		p.t.Fatalf("%d questions about a call are on record", len(found))
	}
	return found[0]
}

// The tool of the older dialect's example asks what is printed there, and is refused by the code that is printed there.
func TestOlderDialect(t *testing.T) {
	t.Parallel()
	archive, err := txtar.ParseFile("../../evaluation/coaz/testdata/figures/sep-example.txtar")
	if err != nil {
		t.Fatal(err)
	}
	const audience = "http://agentprovider.com/agent-app-id"
	for _, era := range []string{"legacy", "modern"} {
		p := pass(t, era, map[string]string{"a.cedar": `permit(principal == user::"alice@example.com", action == Action::"get_customer", resource == customer::"cust-12345") when { context.case == "case-67890" && context.agent == "` + audience + `" };
			permit(principal, action, resource == tool::"up:get_customer");
			permit(principal, action == Action::"initialize", resource);`}, string(archive.Files[0].Data), audience, func(*mcp.Config) {})
		bearer := p.issuer.Token(t, claims(map[string]any{"sub": "alice@example.com", "aud": audience}))
		session := p.begin(era, bearer)
		for _, call := range []struct {
			arguments   string
			code, asked int
		}{
			{`{"id":"cust-12345","case":"case-67890"}`, 0, 2},
			{`{"id":"cust-1","case":"case-67890"}`, -32401, 1},
			{`{"case":"case-67890"}`, -32602, 0},
		} {
			got := p.ask(era, session, bearer, "tools/call", `{"name":"get_customer","arguments":`+call.arguments+`}`)
			asked := slices.DeleteFunc(p.taken(), func(q map[string]any) bool { return q["evaluations"] != nil }) // whether the server may be opened at all
			code := 0
			if got.Error != nil {
				code = got.Error.Code
			}
			if code != call.code || len(asked) != call.asked {
				t.Errorf("%s, %s: %d, asked %v", era, call.arguments, code, asked)
			}
			if call.code == 0 {
				context := asked[0]["context"].(map[string]any)
				delete(context, "declared") // which says that the server asks
				if diff := cmp.Diff(question(t, string(archive.Files[2].Data)), asked[0]); diff != "" {
					t.Errorf("%s (-printed +ours):\n%s", era, diff)
				}
			}
		}
		executed := slices.DeleteFunc(p.upstream.Executed(), func(g mcptest.Got) bool { return g.Method != "tools/call" })
		if len(executed) != 1 {
			t.Errorf("%s: %d calls have arrived", era, len(executed))
		}
	}
}
