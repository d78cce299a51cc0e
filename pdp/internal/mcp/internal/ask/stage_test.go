package ask_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/internal/mcp/internal/ask"
	"policy-service/pdp/internal/mcp/internal/era"
	"policy-service/pdp/internal/mcp/internal/identity"
	"policy-service/pdp/internal/rpc"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/mcptest"
)

const resource = "https://mcp.example.com/mcp"

// stage is a PDP, the questions it got, and an Asker before it.
type stage struct {
	*ask.Asker
	t    testing.TB
	pdp  *pdptest.Server // nil if it is not a real one
	data string

	mu     sync.Mutex
	bodies []string // of each request to the PDP
}

// RoundTrip keeps the questions to the PDP.
func (s *stage) RoundTrip(r *http.Request) (*http.Response, error) {
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	besides := bytes.Contains(text, []byte(`"unknown"`)) && bytes.Contains(text, []byte(`{"name":"tool.request"}`)) // a suggestion beside a refusal
	if !strings.Contains(r.URL.Path, "/obligations") && !besides {
		s.bodies = append(s.bodies, string(text))
	}
	s.mu.Unlock()
	r.Body = io.NopCloser(bytes.NewReader(text))
	return mcptest.LongReceipts{RoundTripper: http.DefaultTransport}.RoundTrip(r)
}

// taken are the bodies since the last call.
func (s *stage) taken() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := s.bodies
	s.bodies = nil
	return taken
}

// open starts a PDP on a bundle.
func open(t testing.TB, bundle map[string]string, set ...func(*ask.Options)) *stage {
	t.Helper()
	s := &stage{t: t, data: mcptest.QuickDir(t)}
	s.pdp = pdptest.Start(t, pdptest.Bundle(bundle), func(c *server.Config) { c.Data = s.data })
	s.before(s.pdp.URL, set...)
	return s
}

// before puts an Asker before the PDP at a URL.
func (s *stage) before(url string, set ...func(*ask.Options)) {
	s.t.Helper()
	client, err := authzenclient.New(url, authzenclient.WithHTTPClient(&http.Client{Transport: s}), authzenclient.WithRetries(0), authzenclient.WithBreaker(0, 0))
	s.must(err)
	o := ask.Options{PDP: map[string]*authzenclient.Client{"default": client}, Resource: resource}
	for _, f := range set {
		f(&o)
	}
	s.Asker, err = ask.New(o)
	s.must(err)
}

// stub is a PDP that says whatever it is made to.
func stub(t testing.TB, h http.HandlerFunc, set ...func(*ask.Options)) *stage {
	t.Helper()
	pdp := httptest.NewServer(h)
	t.Cleanup(pdp.Close)
	s := &stage{t: t}
	s.before(pdp.URL, set...)
	return s
}

// beside puts another Asker before the same PDP.
func (s *stage) beside(set func(*ask.Options)) *stage {
	s.t.Helper()
	more := &stage{t: s.t, pdp: s.pdp}
	more.before(s.pdp.URL, set)
	return more
}

// lists has a list filtered, and fails if other items are shown than want says.
func (s *stage) lists(method, want string, items ...ask.Item) {
	s.t.Helper()
	keep, refusal := s.Filter(s.t.Context(), request(alice(s.t), method, ``), items)
	if got := fmt.Sprint(keep); refusal != nil || got != want {
		s.t.Errorf("%s: %s, %+v", method, got, refusal)
	}
}

func (s *stage) must(err error) {
	s.t.Helper()
	must(s.t, err)
}

var must = mcptest.Must

func parsed(t testing.TB, text string) evaluation.Object {
	t.Helper()
	o, err := evaluation.ParseWithNulls([]byte(text), evaluation.DefaultLimits())
	must(t, err)
	return o
}

// alice works by an agent that is called orchestrator.
func alice(t testing.TB) *identity.Principal {
	return &identity.Principal{
		Issuer: "https://idp.example.com", Subject: "alice", Client: "orchestrator", Key: "k",
		Person: evaluation.PersonOf("https://idp.example.com", "alice"),
		User:   identity.Entity{Type: "user", ID: "alice"}, Agent: identity.Entity{Type: "agent", ID: "orchestrator"},
		Claims: parsed(t, `{"iss":"https://idp.example.com","sub":"alice","client_id":"orchestrator","aud":"`+resource+`","roles":["workflow_orchestrator"],"department_id":"dept-eng","other":7}`),
	}
}

// himself is a person without an agent.
func himself(t testing.TB, name string) *identity.Principal {
	return &identity.Principal{
		Issuer: "https://idp.example.com", Subject: name, Key: "k", Person: evaluation.PersonOf("https://idp.example.com", name),
		User:   identity.Entity{Type: "user", ID: name},
		Claims: parsed(t, `{"iss":"https://idp.example.com","sub":"`+name+`","aud":["https://other.example.com","`+resource+`"]}`),
	}
}

func (s *stage) tool(definition string, labels map[string]string) *ask.Tool {
	s.t.Helper()
	var d struct{ Name string }
	s.must(json.Unmarshal([]byte(definition), &d))
	tool, err := s.Tool("jira-server-1", "shown__"+d.Name, jsontext.Value(definition), labels)
	s.must(err)
	return tool
}

// call is a call of a tool. More are members of params, each with a comma before it.
func (s *stage) call(p *identity.Principal, tool *ask.Tool, arguments string, more ...string) ask.Operation {
	params := `{"name":` + string(rpc.String(tool.Shown))
	if arguments != "" {
		params += `,"arguments":` + arguments
	}
	return ask.Operation{Principal: p, Server: tool.Server, Method: "tools/call", Params: members(params + strings.Join(more, "") + "}"), Tool: tool}
}

// members are those of an object, none if the text is none.
func members(text string) rpc.Object {
	o, _ := rpc.ParseObject(jsontext.Value(text))
	return o
}

// request is any other method, in the era that has it.
func request(p *identity.Principal, method, params string) ask.Operation {
	op := ask.Operation{Principal: p, Method: method, Params: members(params), Era: era.Legacy}
	if method == "server/discover" || method == "subscriptions/listen" {
		op.Era = era.Modern
	}
	return op
}

// outcome asks, and is "permit" or the code of the refusal.
func (s *stage) outcome(op ask.Operation) (string, *ask.Refusal) {
	p, refusal := s.Ask(s.t.Context(), op)
	if (p == nil) == (refusal == nil) {
		s.t.Fatalf("%s: a permit %v, a refusal %v", op.Method, p, refusal)
	}
	if refusal != nil {
		return refusal.Failure(rpc.IntID(1)).Error.String(), refusal
	}
	p.Done(s.t.Context())
	return "permit", nil
}

// records are the lines of the decision log of one kind. The PDP is stopped for it.
func (s *stage) records(kind string) (lines []map[string]any) {
	s.t.Helper()
	s.must(s.pdp.Stop(s.t.Context()))
	r, err := segment.OpenReader(s.data)
	s.must(err)
	defer func() { _ = r.Close() }()
	for record, err := range r.Records(s.t.Context(), 0, r.Size()) {
		s.must(err)
		var line map[string]any
		s.must(json.Unmarshal(record.Line, &line))
		if line["kind"] != kind {
			continue
		}
		whole, err := r.Recorded(record.Line)
		s.must(err)
		if len(whole.Inherits) > 0 {
			line["request"] = anyOf(s.t, string(whole.Asked))
		}
		lines = append(lines, line)
	}
	return lines
}

// anyOf is JSON without the obligations that a PEP declares.
func anyOf(t testing.TB, text string) map[string]any {
	t.Helper()
	var v map[string]any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return undeclared(v)
}

func undeclared(v map[string]any) map[string]any {
	if context, ok := v["context"].(map[string]any); ok {
		delete(context, "supported_obligations")
		delete(context, "supported_mandatory_extensions")
		if len(context) == 0 {
			delete(v, "context")
		}
	}
	items, _ := v["evaluations"].([]any)
	for _, item := range items {
		undeclared(item.(map[string]any))
	}
	return v
}

func text(t testing.TB, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	must(t, err)
	return string(b)
}

func mapped(t testing.TB, mappings map[string]string) map[string]evaluation.Object {
	all := map[string]evaluation.Object{}
	for key, mapping := range mappings {
		all[key] = parsed(t, mapping)
	}
	return all
}

func (s *stage) clients() map[string]*authzenclient.Client {
	s.t.Helper()
	client, err := authzenclient.New(s.pdp.URL)
	s.must(err)
	return map[string]*authzenclient.Client{"default": client}
}
