package console_test

import (
	"cmp"
	"net/http"
	"time"

	"policy-service/pdp/internal/server/auth"
)

// rightsPerson is somebody of a kind. The kinds are in [rightsPeople].
type rightsPerson struct {
	name string
	// principal is who the person is to policies, "" for nobody.
	principal   string
	tenants     []string
	permissions []auth.Permission
	// by is how the person logs in.
	by rightsLogin
	// groups is the claim of a person who logs in at an issuer. An API key of theirs may do the same.
	groups []string
	// token is set if the person comes to the API with a token of the issuer, with the same claims.
	token bool
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

// rightsProgram is the name in the certificate of a program.
const rightsProgram = "program.example"

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
	people = append(people,
		rightsPerson{name: "by issuer", by: byIssuer, groups: []string{"staff", "approvers"}, principal: "olive", tenants: here, permissions: []auth.Permission{auth.Approve}},
		rightsPerson{name: "by issuer, unlisted", by: byIssuer, groups: []string{"approvers"}, principal: "eve", tenants: here, permissions: []auth.Permission{auth.Approve}},
		rightsPerson{name: "by issuer, auditor", by: byIssuer, groups: []string{"auditors"}, principal: "lena", tenants: here, permissions: []auth.Permission{auth.LogRead}},
		rightsPerson{name: "by issuer, of acme", by: byIssuer, groups: []string{"acme"}, principal: "olive", tenants: []string{"acme"}, permissions: []auth.Permission{auth.Approve}},
		// An API key may do something, so theirs may do what is nothing here.
		rightsPerson{name: "by issuer, of no group", by: byIssuer, groups: []string{"staff"}, principal: "lena", tenants: here, permissions: []auth.Permission{auth.Search}},
		rightsPerson{name: rightsProgram, by: byCertificate},
	)
	for _, p := range []auth.Permission{auth.Decide, auth.Search, auth.Explain, auth.LogRead, auth.LogAdmin, auth.Request, auth.Relay} {
		people = append(people, rightsPerson{name: "only " + string(p), principal: "lena", tenants: here, permissions: []auth.Permission{p}})
	}
	return people
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
		{name: "pending, of a certificate", tool: "one", by: rightsProgram},
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
	w.mu.Lock()
	w.n++
	n := w.n
	w.mu.Unlock()
	id = w.asks(s.asker(), rightsQuestion(s.tool, cmp.Or(s.tenant, "default"), n, ""))
	if s.then != nil {
		s.then(w, id, n)
	}
	if s.name == rightsExpired {
		w.Advance(2 * time.Minute)
	}
	return id
}
