package server_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"policy-service/evaluation"
	"policy-service/evaluation/capability"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/pdptest"
)

// openHandsOn opens a relay in which mia and noah decide about each capability, also about those that are handed on.
func openHandsOn(t *testing.T, options ...pdptest.Option) *relay {
	t.Helper()
	files := capabilityFiles()
	files["a.cedar"] = handsOn + `@id("grants_users") @obligation("ask") permit(principal is user, action == Action::"capability.grant", resource is tool);`
	files["entities/e.json"] = `[{"uid":{"type":"user","id":"mia"},"attrs":{},"parents":[{"type":"team","id":"leads"}]},
		{"uid":{"type":"user","id":"noah"},"attrs":{},"parents":[{"type":"team","id":"leads"}]}]`
	w := &relay{wallet: openWalletOn(t, pdptest.Bundle(files), options...)}
	w.keys = map[string]*capability.Holder{"bot": w.holder, "child": newHolder(t, 11), "mia": newHolder(t, 21)}
	w.Advance(time.Minute)
	return w
}

// decides checks whether a person may approve something.
func (w *relay) decides(who, id string, may bool) {
	w.t.Helper()
	status, text := w.do(who, "POST", "/v1/approvals/"+id+"/decision", `{"decision":"approve","reason":"x"}`)
	if want := map[bool]int{true: http.StatusOK, false: http.StatusNotFound}[may]; status != want {
		w.t.Errorf("%s decides: got %d %s, want %d", who, status, text, want)
	}
}

// Nobody approves what is handed on to themselves.
func TestRecipientDoesNotApprove(t *testing.T) {
	t.Parallel()
	w := openHandsOn(t)
	asked := w.asksFor(http.StatusAccepted, deep(1), "danger")
	w.decides("noah", asked.Approval.ID, true)
	root := w.asksFor(http.StatusCreated, func(a *capability.Ask) { a.MaxDepth, a.ApprovalID = 1, asked.Approval.ID }, "danger")
	toMia := func(a *capability.Ask) { a.Holder = evaluation.Ref{Type: "user", ID: "mia"} }
	asked = w.hands(http.StatusAccepted, root, "bot", "mia", toMia, "danger")
	w.decides("mia", asked.Approval.ID, false)
	w.decides("noah", asked.Approval.ID, true)
}

// Who a capability was granted for stands behind what is made from it, too, beside those whom the request names: people and policies
// see them, and they do not approve it.
func TestHandOnIsOnBehalfOfTheSame(t *testing.T) {
	t.Parallel()
	w := openHandsOn(t)
	behind := func(id string) evaluation.Object {
		o, err := evaluation.NewObject(map[string]any{
			"on_behalf_of": []any{map[string]any{"type": "user", "id": id}}, "person": evaluation.PersonOf("https://idp.example", id),
		})
		must(t, err)
		return o
	}
	ofMia := func(a *capability.Ask) { a.MaxDepth, a.Context = 2, behind("mia") }
	asked := w.asksFor(http.StatusAccepted, ofMia, "danger")
	w.decides("mia", asked.Approval.ID, false)
	w.decides("noah", asked.Approval.ID, true)
	root := w.asksFor(http.StatusCreated, func(a *capability.Ask) { ofMia(a); a.ApprovalID = asked.Approval.ID }, "danger")
	w.welcome("own", `agent::"bot"`, auth.Capability) // it may not say for whom it acts
	hand := func(by string, change func(*capability.Ask)) (id string) {
		t.Helper()
		a := capability.Ask{Tenant: "default", Holder: evaluation.Ref{Type: "agent", ID: "child"}, Key: w.keys["child"].Key(), Audience: "b", Tools: []string{"danger"}}
		change(&a)
		must(t, w.keys["bot"].HandOn(&a, root.ID, issuer, w.Now()))
		body, err := json.Marshal(a)
		must(t, err)
		status, text := w.do(by, "POST", "/v1/capabilities/"+root.ID+"/delegate", string(body))
		var g granted
		if must(t, json.Unmarshal([]byte(text), &g)); status != http.StatusAccepted {
			t.Fatalf("handing on: %d %s", status, text)
		}
		return g.Approval.ID
	}
	of := hand("own", func(*capability.Ask) {})
	w.decides("mia", of, false)
	if _, shown := w.do("noah", "GET", "/v1/approvals/"+of, ""); !strings.Contains(shown, `"on_behalf_of":[{"id":"mia","type":"user"}]`) &&
		!strings.Contains(shown, `"on_behalf_of":[{"type":"user","id":"mia"}]`) {
		t.Errorf("noah is shown %s", shown)
	}
	w.decides("noah", of, true)
	of = hand("wallet", func(a *capability.Ask) { a.Context, a.Reason = behind("noah"), "another" })
	w.decides("mia", of, false)
	w.decides("noah", of, false)
}

// Whose token asks does not approve it by another credential, though the question is about the client of the token alone.
func TestTokenOfThePersonWhoApproves(t *testing.T) {
	t.Parallel()
	idp := pdptest.NewIssuer(t)
	const persons = "https://persons.example"
	entry := func(audience, typ, claim string, may auth.Permission) auth.JWTIssuer {
		return auth.JWTIssuer{Issuer: persons, Audience: audience, JWKSFile: idp.File, Algorithms: []string{"EdDSA"},
			Principal: &auth.PrincipalClaim{Type: typ, Claim: claim}, Grant: auth.Grant{Tenants: []string{"default"}, Permissions: []auth.Permission{may}}}
	}
	w := openHandsOn(t, func(c *server.Config) {
		c.Auth.JWT = []auth.JWTIssuer{entry("pdp", "agent", "client_id", auth.Capability), entry("people", "user", "sub", auth.Approve)}
	})
	body, err := json.Marshal(w.asking(nil, "danger"))
	must(t, err)
	token := idp.Token(map[string]any{
		"iss": persons, "sub": "mia", "aud": "pdp", "client_id": "bot", "exp": w.Now().Add(time.Hour).Unix(), "iat": w.Now().Unix(),
	})
	got := w.Do("POST", "/v1/capabilities", string(body), "Content-Type", "application/json", "Authorization", "Bearer "+token)
	var asked granted
	if must(t, json.Unmarshal([]byte(got.Body), &asked)); asked.Approval == nil {
		t.Fatalf("bot asks: %d %s", got.Status, got.Body)
	}
	w.decides("mia", asked.Approval.ID, false)
	w.decides("noah", asked.Approval.ID, true)
}
