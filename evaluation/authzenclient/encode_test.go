package authzenclient_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient"
	"policy-service/obligations"
	"policy-service/pdp/pdptest"
)

func object(t testing.TB, members map[string]any) evaluation.Object {
	t.Helper()
	o, err := evaluation.NewObject(members)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// Both shapes are held to what the server's decoders make of them.
func TestEncoding(t *testing.T) {
	t.Parallel()
	full := evaluation.Request{
		Tenant:   "acme",
		Subject:  evaluation.Entity{Type: "agent", ID: `a"1<é>`, Properties: object(t, map[string]any{"roles": []string{"x"}, "id": "y", "type": "z"})},
		Action:   evaluation.Action{Name: "tool.invoke"},
		Resource: evaluation.Entity{Type: "tool", ID: "", Properties: object(t, map[string]any{"labels": map[string]any{"impact": "write"}})},
		Context:  object(t, map[string]any{"purpose": "why", "n": 1.5, "arguments": map[string]any{"a": []any{1, "b"}}}),
	}
	oddPurpose := question
	oddPurpose.Tenant = "acme"
	oddPurpose.Context = object(t, map[string]any{"purpose": map[string]any{"a": 1}})
	noPurpose := question
	noPurpose.Tenant = "acme"
	noPurpose.Context = object(t, map[string]any{"purpose": ""})
	bare := question
	bare.Tenant = "acme"
	for name, want := range map[string]evaluation.Request{"full": full, "bare": bare, "purpose is an object": oddPurpose, "purpose is empty": noPurpose} {
		t.Run(name, func(t *testing.T) {
			var body []byte
			s := func(r *http.Request) (*http.Response, error) {
				body, _ = io.ReadAll(r.Body)
				return yes(r)
			}
			c, _ := scripted(t, []step{s}, authzenclient.WithTenant("acme"))
			if d := c.Evaluate(t.Context(), want); !d.Permitted() {
				t.Fatal(d)
			}
			got, err := evaluation.DecodeAuthZEN(body, "acme", evaluation.DefaultLimits())
			if err != nil || !same(got, want) {
				t.Errorf("AuthZEN: %s\n%v", body, err)
			}
		})
	}
}

func unknownAt(t testing.TB, pointers ...string) *evaluation.Unknown {
	t.Helper()
	u, err := evaluation.UnknownAt(pointers...)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// A request can ask a real server what is possible, and nothing enforces the answer.
func TestUnknownIsAsked(t *testing.T) {
	t.Parallel()
	s := pdptest.Start(t, pdptest.Bundle(map[string]string{"p.cedar": `permit (principal, action, resource == tool::"pay") when { context.arguments.amount < 100 };`}))
	c := newClient(t, s.URL)
	tool := func(id string, unknown *evaluation.Unknown) evaluation.Request {
		return evaluation.Request{
			Subject: evaluation.Entity{Type: "user", ID: "a"}, Action: evaluation.Action{Name: "tool.invoke"},
			Resource: evaluation.Entity{Type: "tool", ID: id}, Unknown: unknown,
		}
	}
	unknown := unknownAt(t, "/context/arguments")
	if d := c.Evaluate(t.Context(), tool("pay", unknown)); !d.Possible() || d.Permitted() || d.String() != "possible" || string(d.Context()) != `{"possible":true}` {
		t.Errorf("got %v", d)
	}
	for n, d := range c.EvaluateBatch(t.Context(), "", tool("pay", unknown), tool("pay", nil), tool("other", unknown)) {
		if d.Possible() != (n == 0) || d.Permitted() || d.Err() != nil {
			t.Errorf("item %d: got %v", n, d)
		}
	}
	for _, err := range c.SearchResources(t.Context(), tool("pay", unknown)) {
		if err == nil {
			t.Error("a search asks what is possible")
		}
	}
	handlers := obligations.Handlers{}
	if e := c.Enforce(t.Context(), tool("pay", unknown), handlers); e.Permitted() {
		t.Errorf("what is possible is enforced: %v", e)
	}
	for n, e := range c.EnforceBatch(t.Context(), "", handlers, tool("pay", unknown)) {
		if e.Permitted() {
			t.Errorf("item %d: what is possible is enforced: %v", n, e)
		}
	}
}

// Only a PDP that says what is possible was asked what is possible: one that does not know the question answers another.
func TestUnknownIsAnswered(t *testing.T) {
	t.Parallel()
	plain := evaluation.Request{Subject: evaluation.Entity{Type: "user", ID: "a"}, Action: evaluation.Action{Name: "read"}, Resource: evaluation.Entity{Type: "doc", ID: "1"}}
	asks := plain
	asks.Unknown = unknownAt(t, "/context/arguments")
	for answer, want := range map[string]string{
		`{"decision":false,"context":{"possible":true}}`:                                       "possible",
		`{"decision":false,"context":{"possible":false}}`:                                      "impossible",
		`{"decision":false,"context":{"possible":null}}`:                                       "not supported",
		`{"decision":false,"context":{"possible":"true"}}`:                                     "not supported",
		`{"decision":false}`:                                                                   "not supported",
		`{"decision":true}`:                                                                    "not supported",
		`{"decision":true,"context":{"obligations":[{"id":"a","type":"log"}]}}`:                "not supported",
		`{"decision":true,"context":{"possible":true}}`:                                        "not an answer",
		`{"decision":true,"context":{"possible":false}}`:                                       "not an answer",
		`{"decision":false,"context":{"possible":true,"error":{"status":400,"message":"no"}}}`: "item refused",
		`{"decision":false,"context":{"possible":true,"possible":false}}`:                      "not an answer",
		`{"decision":false,"context":{"possible":true,"obligations":7}}`:                       "not an answer",
	} {
		c := newClient(t, stub(t, func(w http.ResponseWriter, r *http.Request) {
			body := answer
			if strings.HasSuffix(r.URL.Path, "evaluations") {
				body = `{"evaluations":[` + answer + `]}`
			}
			says(body)(w, r)
		}))
		all := append(c.EvaluateBatch(t.Context(), evaluation.DenyOnFirstDeny, asks), c.Evaluate(t.Context(), asks))
		for n, d := range all {
			var e *authzenclient.Error
			got := d.String()
			if errors.As(d.Err(), &e) {
				got = string(e.Kind)
			}
			if got != want || d.Permitted() || d.Possible() != (want == "possible") {
				t.Errorf("%s, %d: got %q, possible %t: %v", answer, n, got, d.Possible(), d)
			}
		}
		if d := c.Evaluate(t.Context(), plain); d.Permitted() != (answer == `{"decision":true}`) {
			t.Errorf("%s: of a call, %v", answer, d)
		}
	}
	// What is possible never ends a batch: fewer answers than requests are none.
	c := newClient(t, stub(t, says(`{"evaluations":[{"decision":false,"context":{"possible":false}}]}`)))
	for _, d := range c.EvaluateBatch(t.Context(), evaluation.DenyOnFirstDeny, asks, asks) {
		if d.Err() == nil || d.Possible() {
			t.Errorf("got %v", d)
		}
	}
}

func same(a, b evaluation.Request) bool {
	entity := func(a, b evaluation.Entity) bool {
		return a.Type == b.Type && a.ID == b.ID && a.Properties.Value().Equal(b.Properties.Value())
	}
	return a.Tenant == b.Tenant && entity(a.Subject, b.Subject) && entity(a.Resource, b.Resource) && a.Action.Name == b.Action.Name &&
		a.Action.Properties.Value().Equal(b.Action.Properties.Value()) && a.Context.Value().Equal(b.Context.Value())
}

// What cannot be said exactly is not said: the answer would be to another question.
func TestNotAsked(t *testing.T) {
	t.Parallel()
	edit := func(change func(*evaluation.Request)) evaluation.Request {
		q := question
		change(&q)
		return q
	}
	all := map[string]evaluation.Request{
		"subject id":    edit(func(q *evaluation.Request) { q.Subject.ID = "a\xff" }),
		"subject type":  edit(func(q *evaluation.Request) { q.Subject.Type = "\xff" }),
		"action":        edit(func(q *evaluation.Request) { q.Action.Name = "\xc3" }),
		"resource id":   edit(func(q *evaluation.Request) { q.Resource.ID = "\xed\xa0\x80" }),
		"resource type": edit(func(q *evaluation.Request) { q.Resource.Type = "\xff" }),
		"tenant":        edit(func(q *evaluation.Request) { q.Tenant = "other" }),
	}
	c, s := scripted(t, []step{yes})
	for name, q := range all {
		t.Run(name, func(t *testing.T) {
			wantDeny(t, c.Evaluate(t.Context(), q), authzenclient.NotAsked)
		})
	}
	nobodys, err := authzenclient.New("https://pdp", authzenclient.WithHTTPClient(&http.Client{Transport: s}))
	if err != nil {
		t.Fatal(err)
	}
	wantDeny(t, nobodys.Evaluate(t.Context(), edit(func(q *evaluation.Request) { q.Tenant = "acme" })), authzenclient.NotAsked)
	if s.asked.Load() != 0 {
		t.Error("something was sent")
	}
}
