package console_test

import (
	"cmp"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"policy-service/pdp"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/server"
	"policy-service/pdp/server/auth"
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
var rightsLeads = []string{"mia", "vera", "ada", "olga", "lena", "rex", "acme", "all", "ida"}

// rightsPerson is somebody of a kind. The kinds are in [rightsPeople].
type rightsPerson struct {
	name string
	// principal is who the person is to policies, "" for nobody.
	principal   string
	tenants     []string
	permissions []auth.Permission
	// by is how the person logs in.
	by rightsLogin
	// groups is the claim of a person who logs in at an issuer.
	groups []string
	// revoked is set if the person's key is revoked after they logged in.
	revoked bool
}

// rightsLogin is a way to be somebody to the console.
type rightsLogin int

const (
	byAPIKey rightsLogin = iota
	byNothing
	byIssuer
	byCertificate
)

// rightsPeople are people of every kind: the permission that others lack, the one who lacks it alone, and everybody who
// has something to do with an approval request. Where only a permission is missing, the person is a lead.
func rightsPeople() []rightsPerson {
	here := []string{"default"}
	people := []rightsPerson{
		{name: "stranger", by: byNothing},
		{name: "approver", principal: "mia", tenants: here, permissions: []auth.Permission{auth.Approve}},
		{name: "everything", principal: "lena", tenants: here, permissions: []auth.Permission{auth.Decide, auth.Search, auth.Explain, auth.LogRead, auth.LogAdmin, auth.Request, auth.Approve}},
		{name: "unlisted", principal: "eve", tenants: here, permissions: []auth.Permission{auth.Approve}},
		{name: "asked", principal: "ada", tenants: here, permissions: []auth.Permission{auth.Decide, auth.Approve}},
		{name: "on behalf", principal: "olga", tenants: here, permissions: []auth.Permission{auth.Approve}},
		{name: "delegate", principal: "dan", tenants: here, permissions: []auth.Permission{auth.Approve}},
		{name: "delegated", principal: "ida", tenants: here, permissions: []auth.Permission{auth.Approve}},
		{name: "voted", principal: "vera", tenants: here, permissions: []auth.Permission{auth.Approve}},
		{name: "revoked", principal: "rex", tenants: here, permissions: []auth.Permission{auth.Approve}, revoked: true},
		{name: "of acme", principal: "acme", tenants: []string{"acme"}, permissions: []auth.Permission{auth.Approve}},
		{name: "all tenants", principal: "all", tenants: []string{"*"}, permissions: []auth.Permission{auth.Approve}},
	}
	for _, p := range []auth.Permission{auth.Decide, auth.Search, auth.Explain, auth.LogRead, auth.LogAdmin, auth.Request, auth.Relay} {
		people = append(people, rightsPerson{name: "only " + string(p), principal: "lena", tenants: here, permissions: []auth.Permission{p}})
	}
	return people
}

// rightsWorld is a server and its console, with people of every kind and approval requests in every state.
type rightsWorld struct {
	*pdptest.Server
	t    testing.TB
	data string
	keys *auth.Keys
	// secret is the API key of each person by name, and of the program that asks as pep.
	secret map[string]string

	mu  sync.Mutex
	now time.Time
	n   int
}

func openRights(t testing.TB, people []rightsPerson, options ...pdptest.Option) *rightsWorld {
	t.Helper()
	w := &rightsWorld{t: t, data: t.TempDir(), secret: map[string]string{}, now: pdptest.Now}
	var err error
	w.keys, err = auth.OpenKeys(w.data)
	rightsMust(t, err)
	for _, p := range people {
		if p.by == byAPIKey || p.by == byIssuer {
			w.grants(p)
		}
	}
	w.grants(rightsPerson{name: "pep", tenants: []string{"*"}, permissions: []auth.Permission{auth.Decide}})
	entities := `[{"uid":{"type":"team","id":"leads"},"attrs":{},"parents":[]}`
	for _, lead := range rightsLeads {
		entities += fmt.Sprintf(`,{"uid":{"type":"user","id":%q},"attrs":{},"parents":[{"type":"team","id":"leads"}]}`, lead)
	}
	w.open(pdptest.Bundle(map[string]string{
		"a.cedar": rightsPolicies, "obligations.yaml": rightsObligations, "entities/e.json": entities + "]",
		"tenants/acme/a.cedar": `@id("acme") permit(principal is agent, action == Action::"read", resource);`,
	}), options...)
	return w
}

func (w *rightsWorld) open(bundle pdp.Source, options ...pdptest.Option) {
	w.t.Helper()
	own := func(c *server.Config) {
		c.Data, c.Program.PDP.Now, c.Program.PDP.NewID = w.data, w.clock, nil
		c.Approvals = server.ApprovalsConfig{MaxPendingPerSubject: 100_000, MaxPendingPerTenant: 100_000, MaxPendingPerCaller: 100_000, NewPerMinutePerSubject: 100_000}
	}
	w.Server = pdptest.Start(w.t, bundle, append([]pdptest.Option{own}, options...)...)
}

// rightsConsole turns the console on.
func rightsConsole(c *server.Config) { c.Console = &server.ConsoleConfig{} }

func rightsMust(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (w *rightsWorld) grants(p rightsPerson) {
	w.t.Helper()
	spec := auth.KeySpec{Name: p.name, Grant: auth.Grant{Tenants: p.tenants, Permissions: p.permissions}}
	if p.principal != "" {
		spec.Principal = auth.Principal{Type: "user", ID: p.principal}
	}
	secret, err := w.keys.Add(spec)
	rightsMust(w.t, err)
	w.secret[p.name] = secret
}

func (w *rightsWorld) clock() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

func (w *rightsWorld) pass(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(d)
}

// api asks the API as somebody, by name.
func (w *rightsWorld) api(who, method, path, body string) pdptest.Response {
	w.t.Helper()
	header := []string{"Authorization", ""}
	if secret := w.secret[who]; secret != "" {
		header[1] = "Bearer " + secret
	}
	if body != "" {
		header = append(header, "Content-Type", "application/json")
	}
	return w.Do(method, path, body, header...)
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

// rightsState is a state of an approval request, and how one gets there.
type rightsState struct {
	name, tool, tenant, by string
	then                   func(w *rightsWorld, id string, n int)
}

// asker is who files it.
func (s rightsState) asker() string {
	switch {
	case s.by != "":
		return s.by
	case s.tenant != "":
		return "pep"
	}
	return "asked"
}

const (
	rightsYes = `{"decision":"approve","reason":"fine"}`
	rightsNo  = `{"decision":"deny","reason":"not today"}`
)

// rightsExpired is the state of which all requests are made before time passes.
const rightsExpired = "expired"

func rightsStates() []rightsState {
	said := func(who, what, body string) func(*rightsWorld, string, int) {
		return func(w *rightsWorld, id string, _ int) { w.says(who, id, what, body) }
	}
	return []rightsState{
		{name: "pending", tool: "one"},
		{name: "pending, of a program", tool: "one", by: "only decide"},
		{name: "not delegable", tool: "fixed"},
		{name: "of a template without approvers", tool: "nobodys"},
		{name: "of another tenant", tool: "one", tenant: "acme"},
		{name: "half approved", tool: "two", then: said("voted", "decision", rightsYes)},
		{name: "approved", tool: "one", then: said("voted", "decision", rightsYes)},
		{name: "used up", tool: "one", then: func(w *rightsWorld, id string, n int) {
			w.says("voted", id, "decision", rightsYes)
			if got := w.api("asked", http.MethodPost, "/v1/authorize", rightsQuestion("one", "default", n, `,"approval_id":"`+id+`"`)); got.Body != `{"allow":true}` {
				w.t.Fatalf("it does not go through: %d %s", got.Status, got.Body)
			}
		}},
		{name: "denied", tool: "one", then: said("voted", "decision", rightsNo)},
		{name: rightsExpired, tool: "short"},
		{name: "cancelled", tool: "one", then: said("asked", "cancel", "")},
		{name: "revoked", tool: "one", then: func(w *rightsWorld, id string, _ int) {
			w.says("voted", id, "decision", rightsYes)
			w.says("voted", id, "revoke", "")
		}},
		{name: "delegated", tool: "one", then: said("delegated", "decision", `{"decision":"delegate","to":"user::\"dan\"","reason":"on leave"}`)},
	}
}

// makes makes an approval request that is in a state.
func (w *rightsWorld) makes(s rightsState) (id string) {
	w.t.Helper()
	w.n++
	id = w.asks(s.asker(), rightsQuestion(s.tool, cmp.Or(s.tenant, "default"), w.n, ""))
	if s.then != nil {
		s.then(w, id, w.n)
	}
	if s.name == rightsExpired {
		w.pass(2 * time.Minute)
	}
	return id
}
