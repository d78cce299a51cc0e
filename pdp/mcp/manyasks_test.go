package mcp_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"policy-service/pdp/mcp"
	"policy-service/pdp/mcp/mcptest"
)

func manyRelays(u *mcp.UpstreamConfig) { u.ServerRequests.Elicitation = mcp.RelayOn }

// What a server asks the person, the person is asked in its name; and what is answered goes to no other server, nor does the
// state in which it waits.
func TestManyAsk(t *testing.T) {
	inEras(t, func(t *testing.T, up string) {
		m := newMany(t, camp{change: sealedBy(secretFile(t, "0123456789abcdef0123456789abcdef"))}, map[string]manyServer{
			"a": {answers: new(asker).answers(up), change: manyRelays}, "b": {answers: new(asker).answers(up), change: manyRelays}, "c": {answers: new(asker).answers(up)},
		})
		v := m.person(nil)
		first := v.call("a__look", `{}`)
		if !strings.Contains(first.text, `"message":"[a asks] Who?"`) {
			t.Fatal(first)
		}
		q := stateOf(t, first)
		answers := `{"` + q.key() + `":` + accepted + `}`
		// It is good for nothing but this call of this tool of this server.
		before := len(m.recs["b"].Executed())
		for name, got := range map[string]echo{
			"another server": v.retry("b__look", `{}`, inText(q.State), answers), "another tool": v.retry("a__change", `{}`, inText(q.State), answers),
			"as a prompt": v.ask("prompts/get", `{"name":"a__look","requestState":`+inText(q.State)+`,"inputResponses":`+answers+`}`),
			"one server":  m.with("a").person(nil).retry("look", `{}`, inText(q.State), answers),
		} {
			if got.code() != -32602 {
				t.Errorf("%s: %s", name, got)
			}
		}
		if after := len(m.recs["b"].Executed()); after != before || m.recs["b"].Saw("x-answer") != "" {
			t.Errorf("b got %d", after-before)
		}
		if got := v.retry("a__look", `{}`, inText(q.State), answers); !got.ran() || !strings.Contains(got.text, "x-answer") {
			t.Error(got)
		}
		// Who may not ask is answered nothing.
		if got := v.call("c__look", `{}`); strings.Contains(got.text, "Who?") {
			t.Error(got)
		}
		// In the legacy era two servers ask at once, and each gets its own answer.
		l := m.listener(nil)
		ofB, ofA := l.asked("b__look", `{}`), l.asked("a__look", `{}`)
		if !strings.Contains(ofA.asks, "[a asks] Who?") || !strings.Contains(ofB.asks, "[b asks] Who?") {
			t.Errorf("%s, %s", ofA.asks, ofB.asks)
		}
		for word, c := range map[string]called{"for-a": ofA, "for-b": ofB} {
			l.send(`{"jsonrpc":"2.0","id":`+c.id+`,"result":{"action":"accept","content":{"a":"`+word+`"}}}`, l.headers("", "")...).has(t, http.StatusAccepted)
			if rest := c.rest(t); !strings.Contains(rest, word) {
				t.Errorf("%s: %s", word, rest)
			}
		}
		if m.recs["a"].Saw("for-b") != "" || m.recs["b"].Saw("for-a") != "" {
			t.Error("an answer reached the other server")
		}
	})
}

// Progress is of the server that is called, and who gives a call up gives it up there.
func TestManyProgressAndCancellation(t *testing.T) {
	t.Parallel()
	for _, up := range eras {
		for _, era := range eras {
			t.Run(era+" to "+up, func(t *testing.T) {
				t.Parallel()
				gone := make(chan struct{})
				answers := mcptest.Answers{Eras: []string{up}, Handle: func(c *mcptest.Call) bool {
					if c.Method != "tools/call" {
						return false
					}
					_, token, _ := strings.Cut(string(c.Params), `"progressToken":`)
					token, _, _ = strings.Cut(token, "}")
					token, _, _ = strings.Cut(token, ",")
					c.Message(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":` + token + `,"progress":1,"message":"half"}}`)
					<-c.Context.Done()
					close(gone)
					return true
				}}
				m := newMany(t, camp{}, map[string]manyServer{"a": {answers: answers}, "b": {}})
				v := m.visitor(era, nil)
				v.meta = `,"progressToken":"mine"`
				ctx, giveUp := context.WithTimeout(t.Context(), time.Minute)
				defer giveUp()
				a := v.opens(ctx, http.MethodPost, "tools/call", `{"name":"a__look","arguments":{}}`)
				defer func() { _ = a.Body.Close() }()
				text := make([]byte, 1024)
				for heard := ""; !strings.Contains(heard, `"progressToken":"mine"`); {
					n, err := a.Body.Read(text)
					heard += string(text[:n])
					if err != nil {
						t.Fatal(heard, err)
					}
				}
				giveUp()
				select {
				case <-gone:
				case <-time.After(time.Minute):
					t.Error("the server was not told")
				}
				if n := len(m.recs["b"].Executed()); n > 0 {
					t.Errorf("the other server got %d", n)
				}
			})
		}
	}
}

// A session goes on at another gateway with the same keys, with all servers, and notifications of its client open nothing.
func TestManySessions(t *testing.T) {
	t.Parallel()
	m := newMany(t, camp{change: sealedBy(secretFile(t, "0123456789abcdef0123456789abcdef"))}, map[string]manyServer{
		"a": {answers: mcptest.Answers{Eras: []string{"legacy"}}}, "b": {answers: mcptest.Answers{Eras: []string{"legacy"}}, change: func(u *mcp.UpstreamConfig) { u.ServerRequests.Roots = mcp.RelayOn }},
	})
	v := m.visitor("legacy", nil)
	notify := func(v *visitor, method string) {
		t.Helper()
		v.send(`{"jsonrpc":"2.0","method":"`+method+`","params":{}}`, v.headers("", "")...).has(t, http.StatusAccepted)
	}
	notify(v, "notifications/custom")
	notify(v, "notifications/roots/list_changed")
	for name, want := range map[string]bool{"a": false, "b": true} {
		if got := m.recs[name].Saw("notifications/roots/list_changed") != ""; got != want || m.recs[name].Saw("notifications/custom") != "" {
			t.Errorf("%s heard of roots: %t", name, got)
		}
	}
	other := m.with("a", "b").stranger("legacy", v.token)
	other.session = v.session
	counts := func() int { return len(m.recs["a"].Got()) + len(m.recs["b"].Got()) }
	before := counts()
	notify(other, "notifications/custom")
	if n := counts() - before; n > 0 {
		t.Errorf("a notification opened something: %d messages", n)
	}
	other.call("b__look", `{}`).runs(t)
	bob := m.stranger("legacy", m.issuer.Token(t, mcptest.Claims{"sub": "bob"}))
	bob.session = v.session
	bob.call("a__look", `{}`).has(t, http.StatusNotFound)
	r, err := v.try(t.Context(), http.MethodDelete, "", v.headers("", "")...)
	if err != nil || r.status != http.StatusNoContent {
		t.Error(r, err)
	}
	v.call("a__look", `{}`).has(t, http.StatusNotFound)
	for name, rec := range m.recs {
		deleted := false
		for _, g := range rec.Got() {
			deleted = deleted || g.Verb == http.MethodDelete
		}
		if !deleted {
			t.Errorf("the session with %s goes on", name)
		}
	}
}
