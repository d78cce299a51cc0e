package mcp_test

import (
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"policy-service/pdp/internal/mcp"
	"policy-service/pdp/internal/seal"
)

// owed is the id of the approval that a call was refused for, "" if it was refused for something else.
func owed(got echo) string { return wantedBy(got).ID }

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
		params := elicitationOf(t, d.asked)
		if params.Mode != "url" || params.URL != w.page(id) || len(params.RequestedSchema.Properties) > 0 {
			t.Fatalf("it is asked %s", d.asked)
		}
		for _, secret := range []string{alice.token, w.keys["gateway"]} {
			if strings.Contains(string(d.asked), secret) {
				t.Errorf("a secret is in %s", d.asked)
			}
		}
		for n, headers := range [][]string{nil, nil, {"Authorization", "Bearer " + alice.token}, {"Authorization", "Bearer " + w.keys["mia"]}, {"Approver-Token", alice.token}, {"Cookie", "session=x"}} {
			for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost} {
				page := strings.TrimPrefix(params.URL, w.pdp.URL)
				answer := w.pdp.Do(method, page, "decision=approve&reason=r", append(headers, "Content-Type", "application/x-www-form-urlencoded")...)
				if strings.Contains(answer.Body, `"n":1`) {
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

// D25: what holds the id of an approval, sealed with the gateway's own keys, counts for no client that is shown no form; and no form is
// on record.
func TestAskAttackD25Sealed(t *testing.T) {
	t.Parallel()
	const away = `@id("no-form") forbid (principal, action == Action::"approval.decide", resource is Approval) when { context.via == "form" };`
	for _, era := range eras {
		for tool, files := range map[string]map[string]string{"second-person": {}, "confirm": {"away.cedar": away}} {
			t.Run(era+" "+tool, func(t *testing.T) {
				t.Parallel()
				w := newPeople(t, land{files: maps.Clone(files), change: hasten})
				alice := w.saying(`{"elicitation":{"form":{}}}`, era, nil)
				id := owed(alice.call(tool, `{"n":1}`))
				if steps := strings.Join(w.steps(id), "; "); id == "" || steps != "filed" {
					t.Fatalf("%q: on record is %s", id, steps)
				}
				ring := w.ring(t, siegeResource)
				for n, bound := range [][]byte{nil, []byte(alice.session), boundTo(t, w.principalOf(t, alice), "rec", tool, `{"n":1}`)} {
					for _, purpose := range []seal.Purpose{seal.Approval, seal.RequestID, seal.RequestState, seal.Session} {
						text, err := ring.Seal(purpose, bound, []byte(id))
						orFail(t, err)
						what := fmt.Sprintf("purpose %d, bound %d", purpose, n)
						if era == "legacy" {
							if got := alice.reply(inText(text), saysYes); got.status == http.StatusAccepted {
								t.Errorf("%s: %s", what, got)
							}
						} else if got := alice.retry(tool, `{"n":1}`, inText(text), `{"`+text+`":`+saysYes+`}`); got.ran() {
							t.Errorf("%s: %s", what, got)
						}
						w.unmoved(t, what, tool, id, 0)
					}
				}
			})
		}
	}
}
