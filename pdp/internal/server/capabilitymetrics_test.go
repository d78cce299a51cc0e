package server_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"policy-service/evaluation/capability"
)

// What is counted of capabilities: answers to requests for them, calls that showed one, and how many there are. Neither ids
// nor holders make series, and a grant whose answer was lost is one grant.
func TestCapabilityMetrics(t *testing.T) {
	t.Parallel()
	w := openWallet(t)
	w.Advance(time.Minute)
	read := func() map[string]float64 {
		t.Helper()
		_, text := w.do("explainer", "GET", "/metrics", "")
		for _, never := range []string{"bot", "cap_", "dangerous", w.holder.Key().Thumbprint()} {
			if strings.Contains(text, never) {
				t.Errorf("%s is in the metrics", never)
			}
		}
		return counted(t, text)
	}
	grants := func(outcome string) string {
		return fmt.Sprintf("policy_service_capabilities_grants_total{outcome=%q}", outcome)
	}
	uses := func(outcome string) string {
		return fmt.Sprintf("policy_service_capabilities_uses_total{outcome=%q}", outcome)
	}
	const live = "policy_service_capabilities_live"
	before := read()
	wantCounted(t, before, map[string]float64{grants("granted"): 0, grants("waiting"): 0, grants("denied"): 0, uses("used"): 0, live: 0})
	for _, code := range capability.Codes() {
		wantCounted(t, before, map[string]float64{uses(string(code)): 0})
	}

	waits := w.asksFor(http.StatusAccepted, nil, "dangerous")
	w.says("mia", waits.Approval.ID, "decision", `{"decision":"approve","reason":"yes"}`, http.StatusOK)
	presents := func(a *capability.Ask) { a.ApprovalID = waits.Approval.ID }
	w.asksFor(http.StatusCreated, presents, "dangerous")
	w.asksFor(http.StatusCreated, presents, "dangerous")
	w.asksFor(http.StatusOK, nil, "secret")
	g := w.asksFor(http.StatusCreated, func(a *capability.Ask) { a.MaxUses = 1 }, "read", "never")
	w.is("deny", w.call(g, "b:never")) // it is held, and used for nothing
	w.is("allow", w.call(g, "b:read"))
	w.is("used_up", w.call(g, "b:read"))
	w.reply("wallet", "POST", "/v1/authorize", tool("b:read", "")).is(t, "none is shown", 200, `"reason":"capability_required"`)
	many := `{"subject":{"type":"agent","id":"bot"},"action":{"name":"tool.invoke"},"context":{"capability":{"token":"x"}},"evaluations":[{"resource":{"type":"tool","id":"b:read"}}]}`
	w.reply("wallet", "POST", "/access/v1/evaluations", many).is(t, "in a batch", 200, `"reason":"not_in_batch"`)
	wantCounted(t, read(), map[string]float64{
		grants("granted"): 2, grants("waiting"): 1, grants("denied"): 1,
		uses("used"): 1, uses("used_up"): 1, uses("not_in_batch"): 1, uses("bad_signature"): 0, live: 1,
	})

	must(t, w.CloseCapabilities())
	if n, is := read()[live]; is {
		t.Errorf("%v are live of a file that cannot be read", n)
	}
}
