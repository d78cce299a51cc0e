package server_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4/jwt"

	"policy-service/evaluation"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/auth/keys"
	"policy-service/pdp/pdptest"
)

// granting has an issuer whose tokens have the rights that grants give to groups: each "group permission… in tenant…".
func granting(t *testing.T, grants ...string) (option pdptest.Option, token func(groups ...string) string) {
	t.Helper()
	issuer := pdptest.NewIssuer(t)
	entry := auth.JWTIssuer{
		Issuer: ofPeople, Audience: "pdp", JWKSFile: issuer.File, Algorithms: []string{"EdDSA"},
		Principal: &auth.PrincipalClaim{Type: "user", Claim: "sub"},
	}
	for _, text := range grants {
		left, right, _ := strings.Cut(text, " in ")
		words := strings.Fields(left)
		grant := auth.ClaimGrant{Claim: "groups", Value: words[0], Tenants: strings.Fields(right)}
		for _, word := range words[1:] {
			grant.Permissions = append(grant.Permissions, auth.Permission(word))
		}
		entry.Grants = append(entry.Grants, grant)
	}
	token = func(groups ...string) string {
		return "Bearer " + issuer.Token(jwt.Claims{
			Issuer: ofPeople, Subject: "mia", Audience: jwt.Audience{"pdp"}, Expiry: jwt.NewNumericDate(pdptest.Now.Add(time.Hour)),
		}, map[string]any{"groups": groups})
	}
	return func(c *server.Config) { c.Auth.JWT = []auth.JWTIssuer{entry} }, token
}

// Over HTTP nobody gets by two grants what neither gives: not by the tenant in a path, not by that in a body, and not
// where a route is about all tenants of the caller.
func TestGrantsStayInTheirTenants(t *testing.T) {
	t.Parallel()
	option, token := granting(t, "peps decide in initech", "auditors log.read in globex", "curious explain search in default globex", "operators explain in *", "asks decide request in default")
	o := openOffice(t, option, func(c *server.Config) { c.Program.PDP.Now = func() time.Time { return pdptest.Now } })
	initech, globex := o.ask("initech", evaluationPath, tenantQuestion), o.ask("globex", evaluationPath, tenantQuestion)
	native := func(tenant string) string {
		return `{"tenant_id":"` + tenant + `","actor":{"actor_id":"a","actor_type":"user"},"action":"read","resource":{"type":"doc","id":"1"}}`
	}
	question := strings.ReplaceAll(tenantQuestion, "TENANT", "initech")
	for _, test := range []struct {
		groups, method, path, body string
		status                     int
	}{
		{"peps auditors", "POST", "/tenants/initech/access/v1/evaluation", question, 200},
		{"peps auditors", "POST", "/tenants/globex/access/v1/evaluation", question, 403},
		{"peps auditors", "POST", "/access/v1/evaluation", question, 404},
		{"peps auditors curious", "POST", "/access/v1/evaluation", question, 403},
		{"peps curious", "POST", "/tenants/initech/access/v1/search/subject", strings.Replace(tenantSearch, "delete", "read", 1), 403},
		{"peps curious", "POST", "/tenants/globex/access/v1/search/subject", strings.Replace(tenantSearch, "delete", "read", 1), 200},
		{"peps auditors", "POST", "/v1/authorize", native("initech"), 200},
		{"peps auditors", "POST", "/v1/authorize", native("globex"), 403},
		{"peps auditors", "POST", "/v1/authorize", native("default"), 403},
		{"auditors curious", "POST", "/v1/authorize", native("globex"), 403},
		{"peps auditors", "GET", "/v1/decisions/" + globex, "", 200},
		{"peps auditors", "GET", "/v1/decisions/" + initech, "", 404},
		{"peps", "GET", "/v1/decisions", "", 403},
		{"auditors curious operators", "GET", "/metrics", "", 200},
		{"auditors curious", "GET", "/metrics", "", 403},
		{"", "GET", "/v1/me", "", 200},
		{"", "GET", "/v1/decisions", "", 403},
		{"", "POST", "/access/v1/evaluation", question, 404},
	} {
		o.key["token"] = token(strings.Fields(test.groups)...)
		if got := o.as("token").Do(test.method, test.path, test.body); got.Status != test.status {
			t.Errorf("%s: %s %s: got %d %s, want %d", test.groups, test.method, test.path, got.Status, got.Body, test.status)
		}
	}
	o.key["token"] = token("peps", "auditors", "operators")
	list := o.as("token").get("/v1/decisions")
	if !strings.Contains(list, globex) || strings.Contains(list, initech) {
		t.Errorf("got %s; want records of globex, where the log may be read", list)
	}
	for tenant, want := range map[string]int{"initech": 200, "globex": 403} {
		got := o.as("token").Do("POST", "/tenants/"+tenant+"/access/v1/evaluation", question, "X-Explain", "true")
		if got.Status != want {
			t.Errorf("%s: got %d %s", tenant, got.Status, got.Body)
		}
	}
	o.key["token"] = token("peps", "curious")
	if got := o.as("token").Do("POST", "/tenants/initech/access/v1/evaluation", question, "X-Explain", "true"); strings.Contains(got.Body, "initech-policies.cedar") {
		t.Errorf("an explanation by the grant of another tenant: %s", got.Body)
	}
	if got := o.as("token").get("/readyz"); strings.Contains(got, "bundle") {
		t.Errorf("details by a grant for some tenants: %s", got)
	}
	o.key["token"] = token("peps", "operators")
	if got := o.as("token").get("/readyz"); !strings.Contains(got, "bundle") {
		t.Errorf("got %s, want the details", got)
	}
	for groups, want := range map[string]string{
		"peps auditors": `"tenants":["globex","initech"],"permissions":["decide","log.read"],"grants":[{"tenants":["initech"],"permissions":["decide"]},{"tenants":["globex"],"permissions":["log.read"]}],"via":"api"}`,
		"":              `"tenants":[],"permissions":[],"via":"api"}`,
	} {
		o.key["token"] = token(strings.Fields(groups)...)
		if got := o.as("token").get("/v1/me"); !strings.HasSuffix(strings.TrimSpace(got), want) {
			t.Errorf("%q: got %s, want %s", groups, got, want)
		}
	}
}

// Who approves in one tenant and reads in another decides nothing there, and does not see what waits.
func TestApproversByGrantsStayInTheirTenants(t *testing.T) {
	t.Parallel()
	option, token := granting(t, "leads approve in acme", "auditors log.read explain in default", "everywhere approve in *")
	c := openCounter(t, option)
	ours := c.asks("pep", strings.Replace(tool("push", push), `"default"`, `"acme"`, 1)).Approval.ID
	theirs := c.asks("pep", tool("push", push)).Approval.ID
	c.key["lead"] = token("leads", "auditors")
	items, _ := c.inbox("lead", "")
	if len(items) != 1 || items[0].ID != ours {
		t.Errorf("got %+v, want what waits in acme", items)
	}
	if items, _ := c.inbox("lead", "?tenant=default"); len(items) != 0 {
		t.Errorf("got %+v of a tenant where the person does not approve", items)
	}
	if _, status := c.sees("lead", theirs); status != http.StatusNotFound {
		t.Errorf("got %d", status)
	}
	c.says("lead", theirs, "decision", yes, http.StatusNotFound)
	c.says("lead", ours, "decision", yes, http.StatusOK)
	if s, _ := c.sees("lead", ours); s.Status != "approved" {
		t.Errorf("got %+v", s)
	}
	c.key["lead"] = token("leads", "auditors", "everywhere")
	c.says("lead", theirs, "decision", yes, http.StatusOK)
}

// A request that waits by a login ends with what the login rests on, like one that has the credential itself.
func TestALoginEndsWhileItsRequestWaits(t *testing.T) {
	t.Parallel()
	apiKeys, err := keys.Open(t.TempDir())
	must(t, err)
	person, err := auth.ParsePrincipal(`user::"mia"`)
	must(t, err)
	secret, err := apiKeys.Add(keys.Spec{Name: "mia", Principal: person, Grant: auth.Grant{Tenants: []string{"*"}, Permissions: []auth.Permission{auth.Approve}}})
	must(t, err)
	callers := &auth.Authenticator{Keys: apiKeys}
	login, err := callers.LogInByKey(secret)
	must(t, err)
	s := startInProcess(t, func(c *server.Config) { c.Program.Authenticator = callers })
	ask := func(path string) *http.Response {
		r, err := http.NewRequestWithContext(login.Context(t.Context()), http.MethodGet, "http://console.invalid"+path, nil)
		must(t, err)
		answer, err := s.Transport().RoundTrip(r)
		must(t, err)
		return answer
	}
	if got := bodyOf(t, ask("/v1/me")); !strings.Contains(got, `"caller":"key:mia"`) || !strings.Contains(got, `"via":"`+string(evaluation.ViaConsole)+`"`) {
		t.Errorf("got %s", got)
	}
	answers := make(chan *http.Response, 1)
	go func() { answers <- ask("/v1/approvals?wait=30s") }()
	eventually(t, "it waits", func() bool { return s.Waiting() == 1 })
	must(t, apiKeys.Revoke("mia"))
	if got := <-answers; got.StatusCode != http.StatusUnauthorized {
		t.Errorf("got %d %s", got.StatusCode, bodyOf(t, got))
	}
	if got := ask("/v1/me"); got.StatusCode != http.StatusUnauthorized {
		t.Errorf("got %d %s", got.StatusCode, bodyOf(t, got))
	}
}
