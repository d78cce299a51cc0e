package mcp_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"policy-service/evaluation"
	"policy-service/pdp/mcp"
	"policy-service/pdp/mcp/mcptest"
	"policy-service/pdp/server/config"
)

// Tests of authorization/respond, by which somebody decides about what waits for people, whoever calls.

const respondMethod = "authorization/respond"

// rules are the params by which somebody decides. More has further members, with a comma before them.
func rules(id, decision, more string) string {
	return `{"authorizationId":` + inText(id) + `,"decision":"` + decision + `"` + more + `}`
}

// utters sends a message that has no id, as a client does.
func (v *visitor) utters(method, params string, headers ...string) echo {
	v.s.t.Helper()
	text := `{"jsonrpc":"2.0","method":"` + method + `","params":` + v.params(params) + `}`
	return v.send(text, append(v.headers(method, params), headers...)...)
}

// responded fails unless a vote was taken, and has become something.
func responded(t testing.TB, got echo, id, status string) {
	t.Helper()
	var said struct {
		ID     string `json:"authorizationId"`
		Status string `json:"status"`
	}
	if !got.ran() || json.Unmarshal(got.result, &said) != nil || said.ID != id || said.Status != status {
		t.Errorf("%s, want that it is %s", got, status)
	}
}

// unheard fails unless a message without an id was taken, and nothing was said of it.
func unheard(t testing.TB, got echo) {
	t.Helper()
	if got.status != http.StatusAccepted || got.text != "" {
		t.Errorf("%s, want 202 and nothing more", got)
	}
}

// as is a client of an era with the token of somebody, for no agent.
func (s *siege) as(era, who string) *visitor {
	s.t.Helper()
	return s.visitor(era, mcptest.Claims{"sub": who, "client_id": "desk-of-" + who})
}

// votedByForm is how a vote of a gateway's client is on record.
func votedByForm(decision, who string) string {
	return decision + ` user::"` + who + `" form key:gateway`
}

// Somebody decides by a message of their own, with an id or without, at the replica at which the call waits, or at another: the
// call goes on, or is denied for their reason. Nothing of it reaches the server.
func TestRespond(t *testing.T) {
	t.Parallel()
	for _, era := range eras {
		for _, other := range eras {
			t.Run(era+" by "+other, func(t *testing.T) {
				t.Parallel()
				w := newPeople(t, land{replicas: 2})
				caller := w.plain(era)
				n := 0
				for at, s := range w.replicas {
					mia := s.as(other, "mia")
					for _, heard := range []bool{true, false} {
						for _, decision := range []string{"approve", "deny"} {
							n++
							arguments := fmt.Sprintf(`{"n":%d}`, n)
							before := len(w.forwarded("delegable"))
							over := caller.ahead("delegable", arguments)
							id := w.asks("delegable")
							params := rules(id, decision, `,"reason":"Approved for \u00e9"`)
							if heard {
								responded(t, mia.ask(respondMethod, params), id, map[string]string{"approve": "approved", "deny": "denied"}[decision])
							} else {
								unheard(t, mia.utters(respondMethod, params))
							}
							got := becomes(seenIn(<-over))
							if want := map[string]string{"approve": "runs", "deny": "is denied: Approved for é"}[decision]; got != want {
								t.Errorf("replica %d, %v: it %s, want that it %s", at, heard, got, want)
							}
							w.voted(id, votedByForm(decision, "mia"))
							if ran := len(w.forwarded("delegable")) - before; ran != map[string]int{"approve": 1}[decision] {
								t.Errorf("it ran %d times", ran)
							}
						}
					}
				}
				for _, g := range w.rec.Got() {
					if strings.Contains(g.Method, "authorization") || strings.Contains(string(g.Params), "authorizationId") {
						t.Errorf("the server got %s %s", g.Method, g.Params)
					}
				}
			})
		}
	}
}

// A vote says of an approval until when it counts, and without a reason the plain fact.
func TestRespondValidUntil(t *testing.T) {
	inEras(t, func(t *testing.T, era string) {
		w := newPeople(t, land{change: hasten})
		caller, mia := w.plain(era), w.as(era, "mia")
		id := required(t, caller.call("delegable", `{}`)).ID
		until := w.now().Add(time.Minute).UTC().Truncate(time.Second).Format(time.RFC3339)
		responded(t, mia.ask(respondMethod, rules(id, "approve", `,"validUntil":"`+until+`"`)), id, "approved")
		if got := w.api("gateway", http.MethodGet, "/v1/approvals/"+id, "").Body; !strings.Contains(got, `"valid_until":"`+until) || !strings.Contains(got, `"reason":"approved"`) {
			t.Errorf("on record is %s", got)
		}
		w.advance(2 * time.Minute)
		if got := caller.call("delegable", `{}`); got.ran() {
			t.Errorf("%s", got)
		}
		w.ran("delegable")
	})
}

// What is not plainly a decision, or whose sender has no say, decides nothing, and says so if it has an id.
func TestRespondHostile(t *testing.T) {
	inEras(t, func(t *testing.T, era string) {
		w := newPeople(t, land{change: hasten})
		caller := w.plain(era)
		ids := map[string]string{}
		for _, tool := range []string{"delegable", "second-person", "confirm"} {
			ids[tool] = required(t, caller.call(tool, `{"n":1}`)).ID
		}
		id := ids["delegable"]
		own := w.as(era, "mia")
		refuses := func(by *visitor, what, params string) {
			t.Helper()
			got := by.ask(respondMethod, params)
			if got.code() != -32602 && got.status != http.StatusBadRequest || got.result != nil || strings.Contains(got.text, by.token) {
				t.Errorf("%s: %s", what, got)
			}
			if got := by.utters(respondMethod, params); got.status != http.StatusBadRequest {
				unheard(t, got)
			}
			for tool, id := range ids {
				if votes := w.votes(id); len(votes) > 0 || w.approval(id).Status != "pending" {
					t.Fatalf("%s: %s has %q", what, tool, votes)
				}
			}
		}
		for _, params := range []string{
			`{}`, `{"authorizationId":` + inText(id) + `}`, `{"decision":"approve"}`,
			rules(id, "", ""), rules(id, "yes", ""), rules(id, "Approve", ""), rules(id, "approve ", ""), rules(id, "approved", ""), rules(id, "accept", ""),
			`{"authorizationId":` + inText(id) + `,"decision":true}`, `{"authorizationId":` + inText(id) + `,"decision":["approve"]}`, `{"authorizationId":` + inText(id) + `,"decision":null}`,
			`{"authorizationId":` + inText(id) + `,"Decision":"approve"}`, `{"authorizationid":` + inText(id) + `,"decision":"approve"}`,
			rules(id, "approve", `,"decision":"deny"`), rules(id, "approve", `,"dec\u0069sion":"approve"`), rules(id, "deny", `,"Decision":"approve"`),
			`{"authorizationId":[` + inText(id) + `],"decision":"approve"}`, `{"authorizationId":1,"decision":"approve"}`, `{"authorizationId":null,"decision":"approve"}`,
			rules("", "approve", ""), rules(".", "approve", ""), rules("..", "approve", ""), rules("../approvals/"+id, "approve", ""), rules(id+"/", "approve", ""),
			rules(id+"?a", "approve", ""), rules(id+"#", "approve", ""), rules(" "+id, "approve", ""), rules(strings.ToUpper(id)+"x", "approve", ""), rules("nobody", "approve", ""),
			rules(strings.Repeat("x", 9000), "approve", ""), rules(id+"\n", "approve", ""), rules("é", "approve", ""),
			rules(id, "approve", `,"reason":7`), rules(id, "approve", `,"reason":{"a":1}`), rules(id, "approve", `,"reason":"`+strings.Repeat("x", 5000)+`"`),
			rules(id, "approve", `,"validUntil":"soon"`), rules(id, "approve", `,"validUntil":7`), rules(id, "approve", `,"validUntil":"2001-01-01T00:00:00Z"`),
			rules(id, "deny", `,"validUntil":"2099-01-01T00:00:00Z"`),
			rules(id, "approve", `,"action":"accept"`), rules(id, "approve", `,"content":{"approve":true}`), rules(id, "approve", `,"arguments":{"n":2}`),
			rules(id, "approve", `,"delegateTo":"user::\"eve\""`), rules(id, "deny", `,"delegateTo":"user::\"eve\""`),
			rules(id, "delegate", ""), rules(id, "delegate", `,"delegateTo":""`), rules(id, "delegate", `,"delegateTo":7`), rules(id, "delegate", `,"delegateTo":"eve"`),
			rules(id, "delegate", `,"delegateTo":"user::\"eve\"","validUntil":"2099-01-01T00:00:00Z"`), rules(id, "delegate", `,"DelegateTo":"user::\"eve\""`),
			`{"action":"accept","content":{"approve":true}}`, `{"action":"accept","content":{"approve":true},"authorizationId":` + inText(id) + `}`,
		} {
			refuses(own, params, params)
		}
		// Somebody without a say, whatever they send; and who takes part, where nobody may decide about their own.
		for _, who := range []string{"eve", "bob", "nobody"} {
			refuses(w.as(era, who), who, rules(id, "approve", ""))
		}
		refuses(own, "mia, where no form counts", rules(ids["second-person"], "approve", ""))
		refuses(own, "mia, about what alice confirms", rules(ids["confirm"], "approve", ""))
		alice := w.as(era, "alice")
		refuses(alice, "alice", rules(ids["second-person"], "approve", ""))
		refuses(caller, "the very agent", rules(ids["second-person"], "approve", ""))
		w.untouched(t)

		// After all that a plain one counts, once: neither a second one, nor one after it is decided.
		responded(t, own.ask(respondMethod, rules(id, "approve", "")), id, "approved")
		for _, by := range []*visitor{own, w.as(era, "noah"), w.as(era, "eve")} {
			for _, decision := range []string{"approve", "deny"} {
				by.ask(respondMethod, rules(id, decision, "")).refused(t, -32602, "invalid_params", "", "again")
			}
		}
		w.voted(id, votedByForm("approve", "mia"))
	})
}

// A message of the modern era without an id is held against its headers as one with an id is.
func TestRespondHeaders(t *testing.T) {
	t.Parallel()
	w := newPeople(t, land{change: hasten})
	id := required(t, w.plain("modern").call("delegable", `{}`)).ID
	mia := w.as("modern", "mia")
	params := rules(id, "approve", "")
	for name, headers := range map[string][]string{
		"another method":   {"Mcp-Method", "tools/list"},
		"no method":        {"Mcp-Method", ""},
		"two methods":      {"+Mcp-Method", respondMethod},
		"in another case":  {"Mcp-Method", "Authorization/respond"},
		"another revision": {"Mcp-Protocol-Version", "2025-11-25"},
		"no revision":      {"Mcp-Protocol-Version", ""},
		"no token":         {"Authorization", ""},
		"another token":    {"Authorization", "Bearer " + mia.token + "x"},
		"a page":           {"Origin", "https://elsewhere.example"},
	} {
		if got := mia.utters(respondMethod, params, headers...); got.status < 400 || got.status >= 500 {
			t.Errorf("%s: %s", name, got)
		}
	}
	for _, body := range []string{
		`{"jsonrpc":"2.0","method":"` + respondMethod + `","params":` + params + `}`, // nothing of the client
		`{"jsonrpc":"2.0","method":"` + respondMethod + `"}`,
		`{"jsonrpc":"2.0","id":null,"method":"` + respondMethod + `","params":` + mia.params(params) + `}`,
	} {
		mia.send(body, mia.headers(respondMethod, "{}")...).has(t, http.StatusBadRequest)
	}
	// The legacy era wants a session, and its own one.
	legacy := w.as("legacy", "mia")
	for name, session := range map[string]string{"none": "", "invented": "invented", "another's": w.plain("legacy").session} {
		if got := legacy.utters(respondMethod, params, "Mcp-Session-Id", session); got.status != http.StatusBadRequest && got.status != http.StatusNotFound {
			t.Errorf("session %s: %s", name, got)
		}
	}
	w.voted(id)
	unheard(t, mia.utters(respondMethod, params))
	w.voted(id, votedByForm("approve", "mia"))
}

// A vote that the PDP has not answered is to be sent again, and counts then.
func TestRespondPDPAway(t *testing.T) {
	inEras(t, func(t *testing.T, era string) {
		tap := newWiretap(t)
		w := newPeople(t, land{before: tap.before, change: hasten, serve: tap.serve})
		caller, mia := w.plain(era), w.as(era, "mia")
		id := required(t, caller.call("delegable", `{}`)).ID
		tap.answers(breaksOff)
		got := mia.ask(respondMethod, rules(id, "approve", ""))
		if got.code() != -32603 || got.kind() != "authorization_unavailable" || !strings.Contains(got.text, `"retry_after"`) {
			t.Errorf("%s", got)
		}
		unheard(t, mia.utters(respondMethod, rules(id, "approve", "")))
		tap.answers(nil)
		w.voted(id)
		responded(t, mia.ask(respondMethod, rules(id, "approve", "")), id, "approved")
		caller.call("delegable", `{}`).runs(t)
	})
}

// A vote is a request as others are: whoever sends too many is refused, and told so, also without an id.
func TestRespondRates(t *testing.T) {
	inEras(t, func(t *testing.T, era string) {
		w := newPeople(t, land{change: func(c *mcp.Config) {
			hasten(c)
			c.Limits.PerPrincipal.Rate, c.Limits.PerPrincipal.Burst = 0.001, 6
		}})
		id := required(t, w.plain(era).call("delegable", `{}`)).ID
		mia := w.as(era, "mia")
		mcptest.Until(t, "it is too much", func() bool { return mia.ask(respondMethod, rules("nobody", "approve", "")).kind() == "rate_limited" })
		if got := mia.ask(respondMethod, rules(id, "approve", "")); got.kind() != "rate_limited" {
			t.Errorf("%s", got)
		}
		mia.utters(respondMethod, rules(id, "approve", "")).has(t, http.StatusTooManyRequests, "Retry-After")
		w.voted(id)
		responded(t, w.as(era, "noah").ask(respondMethod, rules(id, "approve", "")), id, "approved")
	})
}

// Decisions are counted by how they ended, whether they have an id or not.
func TestRespondIsCounted(t *testing.T) {
	t.Parallel()
	reader, deps := metered()
	w := newPeople(t, land{change: hasten, deps: deps})
	id := required(t, w.plain("legacy").call("delegable", `{}`)).ID
	mia := w.as("legacy", "mia")
	unheard(t, mia.utters(respondMethod, rules(id, "perhaps", "")))
	responded(t, mia.ask(respondMethod, rules(id, "approve", "")), id, "approved")
	unheard(t, mia.utters(respondMethod, rules(id, "approve", "")))
	var all metricdata.ResourceMetrics
	orFail(t, reader.Collect(t.Context(), &all))
	if got := fmt.Sprint(callsCounted(all, respondMethod)); got != "map[answered:1 refused:2]" {
		t.Error(got)
	}
}

// A gateway that gives everybody one identity, and has no token of anybody, says that nobody decides there.
func TestRespondWithoutToken(t *testing.T) {
	inEras(t, func(t *testing.T, era string) {
		w := newPeople(t, land{change: hasten})
		id := required(t, w.plain(era).call("confirm", `{}`)).ID
		other := *w.siege
		other.config.Identity = mcp.IdentityConfig{Static: &mcp.StaticConfig{Sub: "alice", ClientID: "agent-release", Issuer: w.issuer.URL}}
		other.gateway, other.url = other.beside()
		v := other.stranger(era, "")
		v.begin()
		if got := v.ask(respondMethod, rules(id, "approve", ""), "Authorization", ""); got.code() != -32602 || !strings.Contains(got.text, "nobody decides here") {
			t.Errorf("%s", got)
		}
		unheard(t, v.utters(respondMethod, rules(id, "approve", ""), "Authorization", ""))
		w.voted(id)
	})
}

// Over the standard streams it is the same, in either era: what has no id is answered nothing.
func TestRespondStdio(t *testing.T) {
	t.Parallel()
	w := newPeople(t, land{})
	l := w.stdio(t, nil)
	modern := func(params string) string { return (&visitor{era: "modern", capabilities: "{}"}).params(params) }
	bare := func(params string) string { return params }
	for name, one := range map[string]struct {
		params func(string) string
		heard  bool
	}{"legacy": {bare, true}, "legacy without id": {bare, false}, "modern": {modern, true}, "modern without id": {modern, false}} {
		over := w.plain("modern").ahead("confirm", `{"case":`+inText(name)+`}`)
		id := w.asks("confirm")
		for _, said := range []string{rules(id, "perhaps", ""), rules("nobody", "approve", "")} {
			l.say(`{"jsonrpc":"2.0","method":"` + respondMethod + `","params":` + one.params(said) + `}`)
		}
		text := `"method":"` + respondMethod + `","params":` + one.params(rules(id, "approve", "")) + `}`
		if one.heard {
			l.say(`{"jsonrpc":"2.0","id":7,` + text)
			_, got := l.hears(`"id":7`)
			responded(t, got, id, "approved")
		} else {
			l.say(`{"jsonrpc":"2.0",` + text)
		}
		(<-over).runs(t, name)
		l.call("8", "free", `{}`) // and nothing was said before
		if _, got := l.hears(`"id":8`); !got.ran() {
			t.Errorf("%s: %s", name, got)
		}
	}
	for _, g := range w.rec.Got() {
		if g.Method == respondMethod {
			t.Error("the server got a vote")
		}
	}
}

// No mapping is taken for it: who may decide, the policies say about approval.decide.
func TestRespondMapping(t *testing.T) {
	t.Parallel()
	s := newSiege(t, camp{})
	c := s.config
	c.Mappings = map[string]config.Object{respondMethod: config.Object(`{"evaluation":{"subject":{"type":"user","id":"$token.sub"},"action":{"name":"decide"},"resource":{"type":"a","id":"b"}}}`)}
	if err := c.Check(); err == nil || !strings.Contains(err.Error(), "approval.decide") {
		t.Errorf("%v", err)
	}
	claims, err := evaluation.NewObject(map[string]any{"iss": s.issuer.URL, "sub": "alice"})
	orFail(t, err)
	x, err := mcp.Explain(t.Context(), s.config, mcp.Asked{Claims: claims, Message: []byte(`{"jsonrpc":"2.0","id":1,"method":"` + respondMethod + `","params":` + rules("a", "approve", "") + `}`)})
	if err != nil || x.Refused != nil || len(x.Questions) > 0 {
		t.Errorf("%+v, %v", x, err)
	}
}
