package server_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"policy-service/evaluation"
	"policy-service/evaluation/capability"
	"policy-service/pdp/internal/server/auth"
)

// TestCapabilityContext: a platform says for whom its agent acts and whether it keeps the key. That is on record, people are told,
// and their approval is bound to it. A credential of one principal says nothing of it.
func TestCapabilityContext(t *testing.T) {
	t.Parallel()
	w := openWallet(t)
	w.Advance(time.Minute)
	about := func(text string) func(*capability.Ask) {
		o, err := evaluation.ParseObject([]byte(text), evaluation.DefaultLimits())
		must(t, err)
		return func(a *capability.Ask) { a.Context = o }
	}
	person := evaluation.PersonOf("https://login.example.com", "mia")
	of := `{"person":"` + person + `","on_behalf_of":[{"type":"user","id":"zoe"}],"holder_key":"gateway"}`
	w.asksFor(http.StatusCreated, about(of), "read")
	for _, part := range []string{`"holder_key":"gateway"`, `"on_behalf_of":[{"id":"zoe","type":"user"}]`, `"person":"` + person + `"`} {
		if lines := w.onRecord(part); len(lines) == 0 {
			t.Errorf("nothing on record has %s", part)
		}
	}
	waits := w.asksFor(http.StatusAccepted, about(of), "danger")
	w.reply("mia", "GET", "/v1/approvals/"+waits.Approval.ID, "").is(t, "people read it", 200, "which the gateway keeps", `"id":"zoe"`)
	w.says("mia", waits.Approval.ID, "decision", `{"decision":"approve","reason":"maintenance"}`, http.StatusOK)
	again := func(context string) func(*capability.Ask) {
		return func(a *capability.Ask) {
			about(context)(a)
			a.ApprovalID = waits.Approval.ID
		}
	}
	w.asksFor(http.StatusAccepted, again(strings.Replace(of, "zoe", "noah", 1)), "danger") // of another
	w.asksFor(http.StatusCreated, again(of), "danger")

	for context, at := range map[string]string{
		`{"person":"mia"}`:                "/context/person",
		`{"on_behalf_of":"zoe"}`:          "/context/on_behalf_of",
		`{"holder_key":"agent"}`:          "/context/holder_key",
		`{"approval_id":"x"}`:             "/context/approval_id",
		`{"pdp":{}}`:                      "/context/pdp",
		`{"supported_obligations":["x"]}`: "/context/supported_obligations",
	} {
		const kept = `{"holder_key":"gateway"}`
		body, err := json.Marshal(w.asking(about(kept), "read"))
		must(t, err)
		w.reply("wallet", "POST", "/v1/capabilities", strings.Replace(string(body), kept, context, 1)).is(t, context, 400, `"pointer":"`+at)
	}
	w.welcome("bot", `agent::"bot"`, auth.Capability)
	w.as = "bot"
	w.asksFor(http.StatusCreated, nil, "read")
	has(t, w.asksFor(http.StatusForbidden, about(of), "read").text, "leave context out")
}
