package console_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json"

	"policy-service/pdp"
	"policy-service/pdp/internal/console/oidctest"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/auth/keys"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/clock"
)

// rightsPolicies: whoever is in the team of leads decides, wherever the template is not nobody's.
const rightsPolicies = `
@id("ask") @obligation("one") permit(principal, action == Action::"ask", resource == tool::"one");
@id("two") @obligation("two") permit(principal, action == Action::"ask", resource == tool::"two");
@id("fixed") @obligation("fixed") permit(principal, action == Action::"ask", resource == tool::"fixed");
@id("short") @obligation("short") permit(principal, action == Action::"ask", resource == tool::"short");
@id("nobodys") @obligation("nobodys") permit(principal, action == Action::"ask", resource == tool::"nobodys");
@id("leads") permit(principal in team::"leads", action == Action::"approval.decide", resource is Approval) when { resource.template != "nobody" };
`

const rightsObligations = `
one: {type: approval_required, properties: {template: owner, message: "${principal.id} wants ${resource.id}", timeout: 12h, valid_for: 12h, delegable: true}}
two: {type: approval_required, properties: {template: pair, timeout: 12h, valid_for: 12h, quorum: 2, delegable: true}}
fixed: {type: approval_required, properties: {template: owner, timeout: 12h, valid_for: 12h}}
short: {type: approval_required, properties: {template: owner, timeout: 1m, delegable: true}}
nobodys: {type: approval_required, properties: {template: nobody, timeout: 12h, delegable: true}}
`

// rightsLeads are in the team of those whom the policies let decide.
var rightsLeads = []string{"mia", "vera", "ada", "olga", "lena", "rex", "acme", "all", "ida", "olive"}

// rightsWorld is a server and its console, with people of every kind and approval requests in every state.
type rightsWorld struct {
	*pdptest.Server
	*clock.Clock
	t    testing.TB
	data string
	keys *keys.Keys
	// secret is the API key of each person by name, and of the program that asks as pep; connects are the connections of
	// those who have certificates.
	secret   map[string]string
	connects map[string]http.RoundTripper
	provider *oidctest.Provider

	gone []string // records whose content was removed

	mu sync.Mutex
	n  int
}

// openRights is a server with people, who come by TLS.
func openRights(t testing.TB, people []rightsPerson, options ...pdptest.Option) *rightsWorld {
	t.Helper()
	w := newRightsWorld(t)
	for _, p := range people {
		if (p.by == byAPIKey || p.by == byIssuer) && !p.token {
			w.grants(p)
		}
	}
	w.grants(rightsPerson{name: "pep", tenants: []string{"*"}, permissions: []auth.Permission{auth.Decide}})
	w.grants(rightsPerson{name: "gateway", tenants: []string{"*"}, permissions: []auth.Permission{auth.Decide, auth.Search, auth.Capability}})
	w.grants(rightsPerson{name: "keeper", tenants: []string{"*"}, permissions: []auth.Permission{auth.LogRead, auth.LogAdmin, auth.CapabilityAdmin}})
	entities := `[{"uid":{"type":"team","id":"leads"},"attrs":{},"parents":[]}`
	for _, lead := range rightsLeads {
		entities += fmt.Sprintf(`,{"uid":{"type":"user","id":%q},"attrs":{},"parents":[{"type":"team","id":"leads"}]}`, lead)
	}
	w.provider = oidctest.Start(t, w.Now)
	byTLS, then := w.certified()
	own := []pdptest.Option{byTLS, func(c *server.Config) { c.Console.OIDC = rightsOIDC(w.provider) }, w.byToken}
	w.open(pdptest.Bundle(map[string]string{
		"a.cedar": rightsPolicies, "b.cedar": rightsPagePolicies, "obligations.yaml": rightsObligations, "entities/e.json": entities + "]",
		"tenants/acme/a.cedar": `@id("acme") permit(principal is agent, action == Action::"read", resource);`,
	}), append(own, options...)...)
	then()
	return w
}

// byToken has the API take the tokens of the provider, from people with grants in several tenants.
func (w *rightsWorld) byToken(c *server.Config) {
	c.Auth.JWT = []auth.JWTIssuer{{
		Issuer: w.provider.URL, Audience: rightsAudience, Algorithms: []string{"RS256"}, Principal: &auth.PrincipalClaim{Type: "user", Claim: "sub"}, Grants: rightsGroups(),
	}}
}

// rightsOIDC has the provider where the people of [rightsPeople] log in.
func rightsOIDC(p *oidctest.Provider) *auth.OIDC {
	grant := func(group, tenant string, permission auth.Permission) auth.ClaimGrant {
		return auth.ClaimGrant{Claim: "groups", Value: group, Permissions: []auth.Permission{permission}, Tenants: []string{tenant}}
	}
	return &auth.OIDC{
		Issuer: p.URL, ClientID: oidctest.Client, Principal: &auth.PrincipalClaim{Type: "user", Claim: "sub"},
		Grants: []auth.ClaimGrant{grant("approvers", "default", auth.Approve), grant("auditors", "default", auth.LogRead), grant("acme", "acme", auth.Approve)},
	}
}

// newRightsWorld has no server yet. Its files are in memory, if there is such a place: nothing here is about disks.
func newRightsWorld(t testing.TB) *rightsWorld {
	t.Helper()
	data, err := os.MkdirTemp("/dev/shm", "console")
	if err != nil {
		data = t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(data) })
	w := &rightsWorld{t: t, data: data, secret: map[string]string{}, connects: map[string]http.RoundTripper{}, Clock: clock.At(pdptest.Now)}
	w.keys, err = keys.Open(w.data)
	rightsMust(t, err)
	return w
}

// open starts the server with its console.
func (w *rightsWorld) open(bundle pdp.Source, options ...pdptest.Option) {
	w.t.Helper()
	own := func(c *server.Config) {
		c.Data, c.Program.PDP.Now, c.Program.PDP.NewID = w.data, w.Now, nil
		c.Approvals = server.ApprovalsConfig{MaxPendingPerSubject: 100_000, MaxPendingPerTenant: 100_000, MaxPendingPerCaller: 100_000, NewPerMinutePerSubject: 100_000}
		c.Console = &server.ConsoleConfig{}
	}
	w.Server = pdptest.Start(w.t, bundle, append([]pdptest.Option{own}, options...)...)
}

// certified has the server, and its people, come by TLS, and a program with a certificate.
func (w *rightsWorld) certified() (option pdptest.Option, then func()) {
	w.t.Helper()
	authority := pdptest.NewAuthority(w.t)
	certificate, key := authority.Server()
	option = func(c *server.Config) {
		c.TLS.TLSFiles = server.TLSFiles{CertFile: certificate, KeyFile: key, ClientCAFile: authority.File}
		c.Auth.MTLS = []auth.MTLSRule{{SAN: rightsProgram, Grant: auth.Grant{Tenants: []string{"default"}, Permissions: []auth.Permission{auth.Decide}}}}
	}
	return option, func() {
		w.Trust(authority, authority.Client(rightsProgram))
		w.connects[rightsProgram] = w.Client.Transport
		w.Trust(authority)
	}
}

func rightsMust(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (w *rightsWorld) grants(p rightsPerson) {
	w.t.Helper()
	spec := keys.Spec{Name: p.name, Grant: auth.Grant{Tenants: p.tenants, Permissions: p.permissions}}
	if p.principal != "" {
		spec.Principal = auth.Principal{Type: "user", ID: p.principal}
	}
	secret, err := w.keys.Add(spec)
	rightsMust(w.t, err)
	w.secret[p.name] = secret
}

// api asks the API as somebody, by name.
func (w *rightsWorld) api(who, method, path, body string) (got pdptest.Response) {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), method, w.URL+path, strings.NewReader(body))
	rightsMust(w.t, err)
	if secret := w.secret[who]; secret != "" {
		r.Header.Set("Authorization", "Bearer "+secret)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	answer, err := w.transport(who).RoundTrip(r)
	rightsMust(w.t, err)
	defer func() { _ = answer.Body.Close() }()
	read, err := io.ReadAll(answer.Body)
	rightsMust(w.t, err)
	return pdptest.Response{Status: answer.StatusCode, Header: answer.Header, Body: string(read)}
}

// transport is by what the requests of somebody come.
func (w *rightsWorld) transport(who string) http.RoundTripper {
	for _, one := range []http.RoundTripper{w.connects[who], w.Client.Transport} {
		if one != nil {
			return one
		}
	}
	return http.DefaultTransport
}

// says has somebody do what must succeed.
func (w *rightsWorld) says(who, id, what, body string) {
	w.t.Helper()
	if got := w.api(who, http.MethodPost, "/v1/approvals/"+id+"/"+what, body); got.Status != http.StatusOK {
		w.t.Fatalf("%s says %s %s: got %d %s", who, what, body, got.Status, got.Body)
	}
}

// rightsQuestion is a question that differs from all others by its number.
func rightsQuestion(tool, tenant string, n int, more string) string {
	return fmt.Sprintf(`{"tenant_id":%q,"actor":{"actor_id":"bot","actor_type":"agent"},"action":"ask","resource":{"type":"tool","id":%q},
		"context":{"arguments":{"n":%d},"on_behalf_of":[{"type":"user","id":"olga"}]%s}}`, tenant, tool, n, more)
}

// asks has somebody file an approval request, and returns its id.
func (w *rightsWorld) asks(who, question string) string {
	w.t.Helper()
	var told struct {
		Approval struct{ ID, Status string }
	}
	got := w.api(who, http.MethodPost, "/v1/authorize", question)
	if err := json.Unmarshal([]byte(got.Body), &told, json.MatchCaseInsensitiveNames(true)); got.Status != http.StatusOK || err != nil || told.Approval.Status != "pending" {
		w.t.Fatalf("%s asks %.500s: got %d %.500s", who, question, got.Status, got.Body)
	}
	return told.Approval.ID
}
