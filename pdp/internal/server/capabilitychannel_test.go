package server_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"policy-service/evaluation/capability"
)

// inSession has a capability be bound to a session.
func inSession(session string) func(*capability.Ask) {
	return func(a *capability.Ask) { a.Channel.Session = session }
}

// observed is the body of a call with what the PEP observed of its session.
func (s shot) observed(t testing.TB, channel string) string {
	t.Helper()
	return strings.Replace(s.body(t), `"proof":`, `"channel":`+channel+`,"proof":`, 1)
}

// TestCapabilityChannel: a capability that is bound to a session counts in no other, whoever says so. The id of the session
// is kept nowhere.
func TestCapabilityChannel(t *testing.T) {
	t.Parallel()
	w := openWallet(t)
	w.Advance(time.Minute)
	const session = "ws-0123456789abcdef"
	g := w.asksFor(http.StatusCreated, func(a *capability.Ask) {
		inSession(session)(a)
		a.MaxUses = 2
	}, "read")
	post := func(channel string) string {
		_, text := w.do("wallet", "POST", "/v1/authorize", w.call(g, "b:read").observed(t, channel))
		return text
	}
	for _, other := range []string{`{"session":"ws-0123456789abcdeg"}`, `{"session":""}`, `{}`, `{"session":"` + capability.Channel{Session: session}.Hash() + `"}`} {
		has(t, post(other), `"reason":"capability_invalid"`, `"reason":"channel_mismatch"`, `"audience":"b"`, `"next_action":"request"`)
	}
	w.is("channel_mismatch", w.call(g, "b:read"))
	has(t, post(`{"session":"`+session+`"}`), `"allow":true`, `"uses_left":1`)
	for channel, at := range map[string]string{`"x"`: "channel", `{"tls":"x"}`: "channel/tls", `{"session":5}`: "channel/session"} {
		w.reply("wallet", "POST", "/v1/authorize", w.call(g, "b:read").observed(t, channel)).is(t, channel, 400, `"pointer":"/context/capability/`+at+`"`)
	}
	free := w.asksFor(http.StatusCreated, nil, "read")
	w.reply("wallet", "POST", "/v1/authorize", w.call(free, "b:read").observed(t, `{"session":"x"}`)).is(t, "bound to none", 200, `"allow":true`)
	has(t, w.renews(g, http.StatusBadRequest, uses(2), "read").text, `"pointer":"/channel"`)
	w.renews(g, http.StatusCreated, func(a *capability.Ask) {
		inSession(session)(a)
		a.MaxUses = 2
	}, "read")
	has(t, post(`{"session":"`+session+`"}`), `"allow":true`, `"uses_left":0`)

	waits := w.asksFor(http.StatusAccepted, inSession(session), "danger")
	w.reply("mia", "GET", "/v1/approvals/"+waits.Approval.ID, "").is(t, "people read it", 200, "in one session alone", `"channel":"session"`)
	w.says("mia", waits.Approval.ID, "decision", `{"decision":"approve","reason":"maintenance"}`, http.StatusOK)
	w.asksFor(http.StatusAccepted, func(a *capability.Ask) { a.ApprovalID = waits.Approval.ID }, "danger") // without the session
	if lines := w.onRecord(session); len(lines) > 0 {
		t.Errorf("the session is on record: %s", lines)
	}
	file, err := os.ReadFile(filepath.Join(w.data, "capabilities.db"))
	must(t, err)
	if strings.Contains(string(file), session) {
		t.Error("the session is kept")
	}
}

// TestCapabilityTermsOfChannel: policies can want a session. A request without one is refused, and learns why; so is what was
// granted before.
func TestCapabilityTermsOfChannel(t *testing.T) {
	t.Parallel()
	w := openEdited(t)
	before := w.asksFor(http.StatusCreated, nil, "read")
	must(t, os.WriteFile(filepath.Join(w.dir, "obligations.yaml"), []byte(approvalObligations+"bound: {type: capability_terms, properties: {channel: session}}\n"), 0o600))
	w.under(capabilityPolicies + `@id("bound") @obligation("bound") permit(principal is agent, action == Action::"capability.grant", resource is tool) when { context.pdp.resource.id like "b:*" };`)
	w.becomes(before, "suspended")
	has(t, w.asksFor(http.StatusOK, nil, "read").text, `"granted":false`, `"reason":"obligation_unfilled"`, `"needs":["channel"]`)
	w.becomes(w.asksFor(http.StatusCreated, inSession("ws-1"), "read"), "active")
}
