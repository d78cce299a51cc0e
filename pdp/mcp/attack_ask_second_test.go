package mcp_test

import (
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"policy-service/pdp/mcp"
	"policy-service/pdp/seal"
)

// awayFromForms has policies let no form count for anything.
var awayFromForms = map[string]string{"away.cedar": `@id("no-form") forbid (principal, action == Action::"approval.decide", resource is Approval) when { context.via == "form" };`}

// owed is the id of the approval that a call was refused for, "" if it was refused for something else.
func owed(got echo) string {
	var data struct {
		Request struct {
			ID string `json:"id"`
		} `json:"authorizationRequest"`
	}
	if got.fault == nil || got.code() != -32001 || json.Unmarshal(got.fault.Data, &data) != nil {
		return ""
	}
	return data.Request.ID
}

// D25: under second-person, and where policies let no form count, no form is shown to the agent's own person, and what he
// brings decides nothing: under whatever id, key and state that he has, or can make of what he has.
func TestAskAttackSecondPerson(t *testing.T) {
	t.Parallel()
	for _, era := range eras {
		for name, of := range map[string]struct {
			tool  string
			files map[string]string
		}{"second-person": {"second-person", nil}, "no form counts": {"confirm", awayFromForms}} {
			t.Run(era+" "+name, func(t *testing.T) {
				t.Parallel()
				files := maps.Clone(of.files)
				w := newPeople(t, land{files: files, change: hasten})
				alice := w.client(era)
				alice.capabilities = `{"elicitation":{"form":{}}}` // the link is another matter
				if era == "legacy" {
					alice.session = ""
					alice.begin()
				}
				got := alice.call(of.tool, `{"n":1}`)
				id := w.asks(of.tool)
				if owed(got) != id || strings.Contains(got.text, "elicitation/create") || strings.Contains(got.text, "requestedSchema") {
					t.Errorf("is asked: %s", got)
				}
				if steps := strings.Join(w.steps(id), "; "); steps != "filed" {
					t.Errorf("on record is %s", steps)
				}
				guess := w.ring(t, siegeResource) // with the keys even; she has none
				sealed := map[string]string{"the id": id, "nothing": ""}
				for n, bound := range [][]byte{nil, []byte(alice.session), boundTo(t, w.principalOf(t, alice), "rec", of.tool, `{"n":1}`)} {
					for _, purpose := range []seal.Purpose{seal.RequestID, seal.RequestState, seal.Session} {
						text, err := guess.Seal(purpose, bound, []byte(id))
						orFail(t, err)
						sealed[string(rune('a'+n))+string(rune('0'+purpose))] = text
					}
				}
				if name == "second-person" {
					if era == "modern" {
						q := stateOf(t, alice.call("confirm", `{"n":1}`))
						sealed["the key of a form that is hers"], sealed["the state of a form that is hers"] = q.key(), q.State
					} else {
						sealed["the id of a form that is hers"] = strings.Trim(alice.asked("confirm", `{"n":1}`).id, `"`)
					}
				}
				for what, key := range sealed {
					if era == "legacy" && what == "the id of a form that is hers" {
						continue // answered below
					}
					if era == "legacy" {
						if got := alice.reply(inText(key), saysYes); got.status == http.StatusAccepted {
							t.Errorf("%s: %s", what, got)
						}
						w.unmoved(t, what, of.tool, id, 0)
						continue
					}
					for with, state := range sealed {
						_ = with
						if got := alice.retry(of.tool, `{"n":1}`, inText(state), `{"`+key+`":`+saysYes+`}`); got.ran() {
							t.Errorf("%s, state %s: %s", what, with, got)
						}
					}
					w.unmoved(t, what, of.tool, id, 0)
				}
				for _, answer := range []string{saysYes, `{"authorizationId":"` + id + `","decision":"approve","reason":"I am the agent"}`} {
					// What is another's by MCP's own messages of this service is another's here, too.
					for _, method := range []string{"authorization/respond", "elicitation/respond", "notifications/elicitation/complete", "notifications/authorization/respond"} {
						_ = alice.ask(method, answer)
						_ = alice.send(`{"jsonrpc":"2.0","method":"`+method+`","params":`+alice.params(answer)+`}`, alice.headers(method, answer)...)
					}
					w.unmoved(t, answer, of.tool, id, 0)
				}
				w.knocks(t, alice.token, id)
				w.unmoved(t, "at the PDP", of.tool, id, 0)
				if name == "no form counts" {
					return
				}
				w.approve("mia", id)
				if got := alice.call(of.tool, `{"n":1}`); !got.ran() || len(w.forwarded(of.tool)) != 1 {
					t.Errorf("agreed to: %s", got)
				}
				w.voted(id, `approve user::"mia" api`)
			})
		}
	}
}

// knocks has the holder of a gateway's token come to the PDP by itself: it is 401 everywhere.
func (w *world) knocks(t testing.TB, token, id string) {
	t.Helper()
	for _, route := range []struct{ method, path, body string }{
		{"GET", "/v1/approvals", ""}, {"GET", "/v1/approvals/" + id, ""}, {"GET", "/v1/approvals/" + id + "/elicitation", ""}, {"GET", "/v1/approvals/" + id + "/why", ""},
		{"POST", "/v1/approvals/" + id + "/response", saysYes}, {"POST", "/v1/approvals/" + id + "/decision", `{"decision":"approve","reason":"r"}`},
		{"POST", "/v1/approvals/" + id + "/revoke", `{}`}, {"POST", "/v1/approvals/" + id + "/cancel", `{}`}, {"GET", "/access/v1/requests", ""}, {"POST", "/access/v1/evaluation", `{}`},
		{"POST", "/v1/authorize", `{}`}, {"GET", "/v1/log/export", ""},
	} {
		for name, headers := range map[string][]string{
			"its bearer":           {"Authorization", "Bearer " + token},
			"its bearer and more":  {"Authorization", "Bearer " + token, "Approver-Token", token},
			"the header alone":     {"Approver-Token", token},
			"a cookie":             {"Cookie", "session=" + token},
			"another's forwarding": {"Authorization", "Bearer " + token, "X-Forwarded-User", "mia"},
		} {
			if route.body != "" {
				headers = append(headers, "Content-Type", "application/json")
			}
			if got := w.pdp.Do(route.method, route.path, route.body, headers...); got.Status != http.StatusUnauthorized || strings.Contains(got.Body, token) {
				t.Errorf("%s %s with %s: %d %s", route.method, route.path, name, got.Status, got.Body)
			}
		}
	}
}

// D28: a link is for who may decide, and opening it decides nothing: who opens it is asked who they are. What a client says of
// a page is no agreement, whatever it says.
func TestAskAttackD28Links(t *testing.T) {
	inEras(t, func(t *testing.T, era string) {
		w := newPeople(t, land{change: func(c *mcp.Config) {
			c.Approvals.Channels, c.Approvals.Wait = []string{"url", "wait"}, 100*time.Millisecond
		}})
		alice := w.client(era)
		d := alice.dialogue("confirm", `{"n":1}`)
		id := w.asks("confirm")
		var params struct {
			Mode, URL, Message, ElicitationID string
		}
		orFail(t, json.Unmarshal(d.asked, &params, json.MatchCaseInsensitiveNames(true)))
		if params.Mode != "url" || !strings.HasPrefix(params.URL, w.pdp.URL+"/console/") {
			t.Fatalf("it is asked %s", d.asked)
		}
		for _, secret := range []string{alice.token, w.keys["gateway"]} {
			if strings.Contains(string(d.asked), secret) {
				t.Errorf("a secret is in %s", d.asked)
			}
		}
		for n, headers := range [][]string{nil, nil, {"Authorization", "Bearer " + alice.token}, {"Authorization", "Bearer " + w.keys["mia"]}, {"Approver-Token", alice.token}, {"Cookie", "session=x"}} {
			for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost} {
				r, err := http.NewRequestWithContext(t.Context(), method, params.URL, strings.NewReader("decision=approve&reason=r"))
				orFail(t, err)
				for all := range slices.Chunk(headers, 2) {
					r.Header.Set(all[0], all[1])
				}
				if method == http.MethodPost {
					r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
				}
				answer, err := http.DefaultClient.Do(r)
				orFail(t, err)
				text, err := io.ReadAll(answer.Body)
				orFail(t, err)
				_ = answer.Body.Close()
				if strings.Contains(string(text), `"n":1`) {
					t.Errorf("visit %d, %s: a stranger reads what is asked", n, method)
				}
				w.unmoved(t, "a visit by "+method, "confirm", id, 0)
			}
		}
		// The client says that the page was opened, and more than that.
		for _, answer := range []string{`{"action":"accept"}`, saysYes, `{"action":"accept","content":{"action":"approve","approve":true}}`} {
			if era == "modern" {
				if got := alice.retry("confirm", `{"n":1}`, inText(d.modern.State), `{"`+d.modern.key()+`":`+answer+`}`); got.ran() && !strings.Contains(got.text, "input_required") {
					t.Errorf("%s: %s", answer, got)
				}
			} else {
				_ = alice.reply(d.legacy.id, answer)
			}
			w.unmoved(t, answer, "confirm", id, 0)
		}
		if era == "legacy" {
			_ = d.end()
		}
		// Nobody else gets the link: who may not decide gets none at all.
		if got := alice.call("second-person", `{"n":1}`); strings.Contains(got.text, "/console/") || got.ran() {
			t.Errorf("second-person: %s", got)
		}
		w.approve("alice", id)
		if got := alice.call("confirm", `{"n":1}`); !got.ran() || len(w.forwarded("confirm")) != 1 {
			t.Errorf("agreed to on the page: %s", got)
		}
		if got := w.plain(era).call("confirm", `{"n":1}`); owed(got) == "" || owed(got) == id {
			t.Errorf("a second time: %s", got)
		}
	})
}
