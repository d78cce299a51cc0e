package server_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"policy-service/pdp"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/pdptest"
)

// thenAnswer is the answer to GET /v1/decisions/{id}/explain.
type thenAnswer struct {
	Bundle, Answer, Reason string
	Same                   *bool
	DependsOn              *struct{ Paths, Policies []string } `json:"depends_on"`
	Policies               []struct {
		ID, Effect, Part, Verdict, Position, Text, Failed string
		Clauses                                           []struct{ Text, Result string }
		Attributes                                        []struct{ Path, Source string }
	}
}

// clauses are the results of the clauses of a policy, "?" if it is not there.
func (e *thenAnswer) clauses(id string) string {
	for _, p := range e.Policies {
		if p.ID == id {
			results := make([]string, len(p.Clauses))
			for n, c := range p.Clauses {
				results[n] = c.Result
			}
			return strings.Join(results, " ")
		}
	}
	return "?"
}

const (
	firstPolicies = `// What doctors may.
@id("doctors")
permit (principal, action == Action::"read", resource)
when { principal has role && principal.role == "doctor" } // always
unless { context has locked && context.locked }
when { resource has ward };

// What nobody may.
@id("never")
forbid (principal, action == Action::"burn", resource) when { context.pin == "1234" || context.pin == "0000" };
@id("burners")
permit (principal, action == Action::"burn", resource);
@id("ask") @obligation("approval_required")
permit (principal, action == Action::"ask", resource);
`
	secondPolicies = `@id("doctors") permit (principal, action == Action::"read", resource);`
)

// oldBundle is a server whose policies have changed since, with a reader for each right. The ids are of a decision about
// each action.
type oldBundle struct {
	*pdptest.Server
	key  map[string]string
	ids  map[string]string
	data string
}

func openOldBundle(t *testing.T) *oldBundle {
	t.Helper()
	policies, data := t.TempDir(), t.TempDir()
	write := func(name, text string) {
		t.Helper()
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(policies, name)), 0o700))
		must(t, os.WriteFile(filepath.Join(policies, name), []byte(text), 0o600))
	}
	write("a.cedar", firstPolicies)
	write("bundle.yaml", "unknown_entities: evaluate\n")
	must(t, os.MkdirAll(filepath.Join(policies, "tenants/empty"), 0o700))
	o := &oldBundle{key: map[string]string{}, ids: map[string]string{}, data: data}
	grant := func(name string, tenants []string, permissions ...auth.Permission) {
		o.key[name] = addKey(t, data, name, auth.Grant{Tenants: tenants, Permissions: permissions})
	}
	grant("pep", []string{"*"}, auth.Decide, auth.Search)
	grant("auditor", []string{"*"}, auth.LogRead, auth.Explain, auth.LogAdmin)
	grant("reader", []string{"*"}, auth.LogRead)
	grant("explainer", []string{"*"}, auth.Explain)
	grant("empty", []string{"empty"}, auth.LogRead, auth.Explain)
	o.Server = pdptest.Start(t, pdp.Dir(policies), withData(data), func(c *server.Config) { c.DecisionLog.Mask = []string{"/context/pin"} })
	o.Client = describedClient(t)
	ask := func(name, path, body string) {
		t.Helper()
		got := o.Post(path, body, "Authorization", o.key["pep"])
		if o.ids[name] = got.Header.Get("X-Decision-Id"); got.Status != http.StatusOK || o.ids[name] == "" {
			t.Fatalf("%s: got %d %s", name, got.Status, got.Body)
		}
	}
	question := func(action, subject, context string) string {
		return `{"subject":{"type":"user","id":"mia","properties":` + subject + `},"action":{"name":"` + action + `"},"resource":{"type":"doc","id":"plan","properties":{"ward":"3"}},"context":` + context + `}`
	}
	ask("allow", evaluationPath, question("read", `{"role":"doctor"}`, `{}`))
	ask("deny", evaluationPath, question("read", `{"role":"nurse"}`, `{}`))
	ask("locked", evaluationPath, question("read", `{"role":"doctor"}`, `{"locked":true}`))
	ask("masked", evaluationPath, question("burn", `{}`, `{"pin":"1234"}`))
	ask("waiting", "/v1/authorize", `{"tenant_id":"default","actor":{"actor_id":"bot","actor_type":"agent"},"action":"ask","resource":{"type":"tool","id":"x"}}`)
	ask("empty", "/tenants/empty"+evaluationPath, question("read", `{"role":"doctor"}`, `{}`))
	ask("search", "/access/v1/search/subject", `{"subject":{"type":"user"},"action":{"name":"read"},"resource":{"type":"doc","id":"plan"}}`)
	ask("possible", evaluationPath, strings.TrimSuffix(question("read", `{}`, `{}`), "}")+`,"options":{"unknown":["/subject/properties"]}}`)
	ask("batch", "/access/v1/evaluations", `{"subject":{"type":"user","id":"mia","properties":{"role":"doctor"}},"resource":{"type":"doc","id":"plan","properties":{"ward":"3"}},"evaluations":[{"action":{"name":"read"}},{"action":{"name":"write"}}]}`)
	ask("redacted", evaluationPath, question("read", `{"role":"doctor"}`, `{}`))
	if got := o.Post("/v1/decisions/"+o.ids["redacted"]+"/redaction", `{"reason":"erasure"}`, "Authorization", o.key["auditor"]); got.Status != http.StatusNoContent {
		t.Fatalf("got %d %s", got.Status, got.Body)
	}
	write("a.cedar", secondPolicies)
	before := o.explain(t, "allow", "auditor", http.StatusOK).Bundle
	eventually(t, "other policies", func() bool {
		return !strings.Contains(o.Get("/v1/bundles", "Authorization", o.key["auditor"]).Body, before)
	})
	return o
}

// explain asks as somebody, and for a status.
func (o *oldBundle) explain(t *testing.T, name, as string, status int) *thenAnswer {
	t.Helper()
	id := o.ids[name]
	if id == "" {
		id = name
	}
	got := o.Get("/v1/decisions/"+id+"/explain", "Authorization", o.key[as])
	if got.Status != status {
		t.Errorf("%s as %s: got %d, want %d: %s", name, as, got.Status, status, got.Body)
	}
	out := &thenAnswer{}
	must(t, json.Unmarshal([]byte(got.Body), out))
	return out
}

// A decision is explained by the policies of then, clause by clause, after others have come into force.
func TestADecisionIsExplainedByThePoliciesOfThen(t *testing.T) {
	t.Parallel()
	o := openOldBundle(t)
	for name, want := range map[string]struct{ answer, clauses string }{
		"allow":   {"allow", "held held held held"},
		"deny":    {"deny", "held failed not_reached not_reached"},
		"locked":  {"deny", "held held failed not_reached"},
		"empty":   {"allow", "held held held held"},
		"waiting": {"waiting", "?"},
	} {
		got := o.explain(t, name, "auditor", http.StatusOK)
		if got.Answer != want.answer || got.Same == nil || !*got.Same || got.clauses("doctors") != want.clauses {
			t.Errorf("%s: got %+v", name, got)
		}
	}
	got := o.explain(t, "allow", "auditor", http.StatusOK)
	text, _, _ := strings.Cut(strings.TrimPrefix(firstPolicies, "// What doctors may.\n"), "\n\n")
	if p := got.Policies[0]; p.ID != "doctors" || p.Part != "determining" || p.Position != "a.cedar:2:1" || p.Text != text || p.Effect != "permit" {
		t.Errorf("got %+v", p)
	}
	if p := o.explain(t, "deny", "auditor", http.StatusOK).Policies[0]; p.Part != "near" || p.Failed == "" {
		t.Errorf("got %+v", p)
	}
	for item, want := range map[string]string{".0": "allow", ".1": "deny"} {
		o.ids["item"] = o.ids["batch"] + item
		if got := o.explain(t, "item", "auditor", http.StatusOK); got.Answer != want || !*got.Same {
			t.Errorf("%s: got %+v", item, got)
		}
	}
}

// A masked value is not known: the explanation says that the answer may depend on it, and shows the policies.
func TestAMaskedValueIsNotKnown(t *testing.T) {
	t.Parallel()
	o := openOldBundle(t)
	got := o.explain(t, "masked", "auditor", http.StatusOK)
	if got.DependsOn == nil || got.DependsOn.Paths[0] != "/context/pin" || got.Same != nil || got.Answer != "" {
		t.Fatalf("got %+v", got)
	}
	if p := got.Policies[0]; p.ID != "never" || !strings.HasPrefix(p.Text, `@id("never")`) {
		t.Errorf("got %+v", p)
	}
}

// Each reason why there is no explanation has its status.
func TestWhyThereIsNoExplanation(t *testing.T) {
	t.Parallel()
	o := openOldBundle(t)
	o.explain(t, "allow", "reader", http.StatusForbidden)
	o.explain(t, "allow", "explainer", http.StatusForbidden)
	o.explain(t, "empty", "empty", http.StatusOK)
	o.explain(t, "allow", "empty", http.StatusNotFound)
	o.explain(t, "nosuch", "auditor", http.StatusNotFound)
	o.explain(t, "search", "auditor", http.StatusConflict)
	o.explain(t, "possible", "auditor", http.StatusConflict)
	o.explain(t, "redacted", "auditor", http.StatusGone)
	kept, err := filepath.Glob(filepath.Join(o.data, segment.BundlesDir, "*"))
	must(t, err)
	if len(kept) == 0 {
		t.Fatal("no file of a bundle is kept")
	}
	o.explain(t, "allow", "auditor", http.StatusOK) // it is at hand, so its files need not be there
	for _, name := range kept {
		must(t, os.Remove(name))
	}
	o.explain(t, "allow", "auditor", http.StatusOK)
	// Nothing was explained yet by the bundle in force, and its files are gone, too.
	got := o.Post(evaluationPath, readQuestion, "Authorization", o.key["pep"])
	o.explain(t, got.Header.Get("X-Decision-Id"), "auditor", http.StatusGone)
}

// The right to explain counts in the tenant of the record, and other rights make no difference.
func TestTheRightToExplainCountsInTheTenant(t *testing.T) {
	t.Parallel()
	caller := auth.Caller{Name: "jwt:x#mia", Apart: []auth.Grant{
		{Permissions: []auth.Permission{auth.Decide}, Tenants: []string{"acme", "default"}},
		{Permissions: []auth.Permission{auth.LogRead}, Tenants: []string{"acme", "default"}},
		{Permissions: []auth.Permission{auth.Explain}, Tenants: []string{"acme"}},
	}}
	s := pdptest.Start(t, bundle(t), withData(t.TempDir()), asking(caller))
	for prefix, want := range map[string]int{"/tenants/acme": http.StatusOK, "": http.StatusForbidden} {
		id := s.Post(prefix+evaluationPath, readQuestion).Header.Get("X-Decision-Id")
		if got := s.Get("/v1/decisions/" + id + "/explain"); id == "" || got.Status != want {
			t.Errorf("%q: got %d %s, want %d", prefix, got.Status, got.Body, want)
		}
	}
}
