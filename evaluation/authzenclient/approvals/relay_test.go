package approvals_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4/jwt"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient"
	"policy-service/evaluation/authzenclient/approvals"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/inside/auth"
	"policy-service/pdp/pdptest/inside/server"
)

const issuerOfPeople, audienceOfGateway = "https://login.example.com", "https://mcp.example.com"

// relayed has the very person confirm what their agent does, in a form of the gateway.
var relayed = map[string]string{
	"bundle.yaml": "allow_self_approval: [confirm]\n",
	"a.cedar": `@id("mail") @obligation("confirm") permit(principal, action == Action::"tool.invoke", resource == tool::"mail");
@id("self") permit(principal is user, action == Action::"approval.decide", resource is Approval)
when { context.via == "form" && context.gateway == "key:gw" && resource.chain.contains(principal) };`,
	"obligations.yaml": `confirm: {type: approval_required, properties: {template: confirm, message: "mail as ${principal.id}"}}`,
}

// A gateway asks for a person, shows them the form and sends what they say, by their token beside its own key.
func TestGatewayRelays(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	issuer := pdptest.NewIssuer(t)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	keys, err := auth.OpenKeys(data)
	must(err)
	all := []string{"*"}
	key, err := keys.Add(auth.KeySpec{Name: "gw", Grant: auth.Grant{Tenants: all, Permissions: []auth.Permission{auth.Decide, auth.Request, auth.Relay}}})
	must(err)
	s := pdptest.Start(t, pdptest.Bundle(relayed), func(c *server.Config) {
		c.Data, c.Program.PDP.NewID = data, nil
		c.Auth.JWT = []auth.JWTIssuer{{
			Issuer: issuerOfPeople, Audience: audienceOfGateway, JWKSFile: issuer.File, Algorithms: []string{"EdDSA"}, RelayedBy: []string{"gw"},
			Principal: &auth.PrincipalClaim{Type: "user", Claim: "sub"}, Grant: auth.Grant{Tenants: all, Permissions: []auth.Permission{auth.Approve}},
		}}
	})
	gateway, err := authzenclient.New(s.URL, authzenclient.WithKey(key), authzenclient.WithTimeout(time.Minute), authzenclient.WithRetries(0),
		authzenclient.WithClock(func() time.Time { return pdptest.Now }, nil))
	must(err)
	person := func(sub string) approvals.Person {
		p, err := approvals.PersonWith(issuer.Token(jwt.Claims{Issuer: issuerOfPeople, Subject: sub, Audience: []string{audienceOfGateway}, Expiry: jwt.NewNumericDate(pdptest.Now.Add(time.Hour))}))
		must(err)
		return p
	}
	context, err := evaluation.NewObject(map[string]any{
		"arguments": map[string]any{"to": "all"}, "on_behalf_of": []any{map[string]any{"type": "user", "id": "mia"}}, "person": evaluation.PersonOf(issuerOfPeople, "mia"),
	})
	must(err)
	q := evaluation.Request{Subject: evaluation.Entity{Type: "agent", ID: "bot"}, Action: evaluation.Action{Name: "tool.invoke"}, Resource: evaluation.Entity{Type: "tool", ID: "mail"}, Context: context}

	standing, err := approvals.Ask(t.Context(), gateway, denies(t, gateway, q), approvals.JoinEqual())
	must(err)
	id := standing.Approvals()[0]
	accept := []byte(`{"action":"accept","content":{"approve":true}}`)
	var failure *authzenclient.Error
	if form, err := approvals.Form(t.Context(), gateway, id, person("noah"), ""); !errors.As(err, &failure) || failure.Status != 404 {
		t.Errorf("noah is shown %s, %v", form, err)
	}
	if told, err := approvals.Notification(t.Context(), gateway, id, person("noah")); !errors.As(err, &failure) || failure.Status != 404 || failure.Op != "notification" {
		t.Errorf("noah is told %s, %v", told, err)
	}
	for name, p := range map[string]approvals.Person{"nobody": {}, "noah": person("noah")} {
		if status, err := approvals.Respond(t.Context(), gateway, id, p, accept); err == nil {
			t.Errorf("%s: %s", name, status)
		}
	}
	if _, err := approvals.Form(t.Context(), gateway, id, person("mia"), ""); err != nil {
		t.Error(err)
	}
	if told, err := approvals.Notification(t.Context(), gateway, id, person("mia")); err != nil || !strings.Contains(string(told), `"method":"notifications/authorization/request","params":{"id":"`+id+`"`) {
		t.Errorf("mia is told %s, %v", told, err)
	}
	status, err := approvals.Respond(t.Context(), gateway, id, person("mia"), accept)
	if err != nil || status != "approved" {
		t.Fatalf("mia: %s, %v", status, err)
	}
	if e := approvals.Use(t.Context(), gateway, stands(t, gateway, standing.Task()), q, nil).Discharge(t.Context(), nil); !e.Permitted() {
		t.Errorf("used: %v", e)
	}
}
