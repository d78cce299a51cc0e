package mcp_test

import (
	"net/http"
	"strings"
	"testing"

	"policy-service/pdp/mcp/mcptest"
)

// An agent that has the token of somebody who may decide has no vote on what it asks itself: not by a message, nor by an
// answer to a form that was never shown. It does not hear of the request, and every answer is the same, whatever becomes of
// the request. Through another client the same person decides.
func TestAskAttackAnAgentVotesOnItsOwnRequest(t *testing.T) {
	inEras(t, func(t *testing.T, era string) {
		w := newPeople(t, land{change: hasten, files: map[string]string{"bundle.yaml": "allow_trivial: true\n"}})
		const arguments = `{"n":1}`
		id := required(t, w.plain(era).call("delegable", arguments)).ID
		forger, desk := w.takesForms(era, mcptest.Claims{"sub": "mia"}), w.visitor(era, mcptest.Claims{"sub": "mia", "client_id": "agent-2"})
		refused := map[string]bool{}
		tries := func() {
			t.Helper()
			for _, of := range []string{id, "01a1fdc8-2f47-7a90-b3c1-9e8d7f6a5b41"} {
				for _, decision := range []string{"approve", "deny", "delegate"} {
					more := ""
					if decision == "delegate" {
						more = `,"delegateTo":"user::\"noah\""`
					}
					got := forger.ask(respondMethod, rules(of, decision, more))
					if got.code() != -32602 {
						t.Fatalf("%s of %s: %s", decision, of, got)
					}
					refused[got.fault.Message+string(got.fault.Data)] = true
					unheard(t, forger.utters(respondMethod, rules(of, decision, more)))
				}
			}
			switch era {
			case "legacy":
				for _, key := range []string{inText(id), `1`, `"approval"`} {
					if got := forger.reply(key, saysYes); got.status != http.StatusBadRequest {
						t.Errorf("an answer to %s: %s", key, got)
					}
				}
			default:
				for _, key := range []string{id, "approval"} {
					if got := forger.retry("delegable", arguments, inText(id), `{"`+key+`":`+saysYes+`}`); got.ran() {
						t.Errorf("an answer to %s: %s", key, got)
					}
				}
			}
			path := "/v1/approvals/" + id
			for _, headers := range [][]string{{"Approver-Token", forger.token, "Approver-Client", "agent/agent-release"}, {"Approver-Token", forger.token}} {
				if got := w.api("gateway", http.MethodPost, path+"/decision", `{"decision":"approve","reason":"yes"}`, headers...); got.Status != http.StatusForbidden {
					t.Errorf("a decision: %d %s", got.Status, got.Body)
				}
				if got := w.api("gateway", http.MethodPost, path+"/response", saysYes, headers...); got.Status != http.StatusNotFound {
					t.Errorf("a form: %d %s", got.Status, got.Body)
				}
			}
		}
		hears, ear := desk.listens(), forger.listens()
		hears.welcomed()
		if got := hears.next("notifications/authorization/request"); !strings.Contains(got.text, id) {
			t.Errorf("heard %s", got.text)
		}
		ear.welcomed()
		if got := forger.call("never", `{}`); got.kind() != "tool_call_blocked" {
			t.Fatal(got)
		}
		ear.next("notifications/tool_call_blocked") // what waits is told before
		tries()
		if got := w.approval(id); got.Status != "pending" || len(got.Said) > 0 {
			t.Fatalf("it is %+v", got)
		}
		responded(t, desk.ask(respondMethod, rules(id, "approve", "")), id, "approved")
		tries()
		if len(refused) != 1 {
			t.Errorf("there are several answers: %v", refused)
		}
		w.voted(id, votedByForm("approve", "mia"))
		ear.nothing()
	})
}

// A bundle may let people vote through the client that asks: by the template, or by the terms of the obligation.
func TestVotesThroughTheAgentThatAsksWhereTheBundleLetsThem(t *testing.T) {
	t.Parallel()
	for name, files := range map[string]map[string]string{
		"allow_self_approval": {"bundle.yaml": "allow_trivial: true\nallow_self_approval: [delegable]\n"},
		"same_client": {
			"bundle.yaml": "allow_trivial: true\n", "obligations.yaml": strings.Replace(peopleObligations, "template: delegable", "template: delegable, same_client: true", 1),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newPeople(t, land{change: hasten, files: files})
			id := required(t, w.plain("modern").call("delegable", `{"n":1}`)).ID
			by := w.visitor("modern", mcptest.Claims{"sub": "mia"})
			responded(t, by.ask(respondMethod, rules(id, "approve", "")), id, "approved")
			w.voted(id, votedByForm("approve", "mia"))
		})
	}
}
