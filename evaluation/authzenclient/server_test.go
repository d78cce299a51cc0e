package authzenclient_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient"
	"policy-service/pdp"
	"policy-service/pdp/pdptest"
)

// Everybody in the group reads every doc; acme's own people read acme's.
func docs() pdp.Source {
	var people, things []string
	for n := range 23 {
		people = append(people, fmt.Sprintf(`{"uid":{"type":"user","id":"u%02d"},"attrs":{},"parents":[{"type":"Group","id":"g%d"}]}`, n, n%2))
		things = append(things, fmt.Sprintf(`{"uid":{"type":"doc","id":"d%02d"},"attrs":{"draft":%v},"parents":[]}`, n, n%3 == 0))
	}
	return pdptest.Bundle(map[string]string{
		"docs.cedar": `@id("read") permit (principal in Group::"g0", action == Action::"read", resource is doc) unless { resource.draft };
			@id("write") permit (principal == user::"u00", action == Action::"write", resource is doc);
			@id("kept") @reason_user("Documents are kept.") forbid (principal, action == Action::"delete", resource);`,
		"entities/all.json":       "[" + strings.Join(slices.Concat(people, things), ",") + "]",
		"tenants/acme/acme.cedar": `@id("acme") permit (principal == user::"u01", action == Action::"read", resource is doc);`,
	})
}

func ask(user, action, doc string) evaluation.Request {
	return evaluation.Request{Subject: evaluation.Entity{Type: "user", ID: user}, Action: evaluation.Action{Name: action}, Resource: evaluation.Entity{Type: "doc", ID: doc}}
}

// One server, every call, with and without discovery, in both tenants.
func TestRealServer(t *testing.T) {
	t.Parallel()
	s := pdptest.Start(t, docs())
	for _, tenant := range []string{"default", "acme"} {
		t.Run(tenant, func(t *testing.T) {
			c := newClient(t, s.URL, authzenclient.WithTenant(tenant), authzenclient.WithRequestIDs(pdptest.IDs(), true), authzenclient.WithPageSize(4))
			checkServer(t, c, tenant)
			if err := c.Discover(t.Context()); err != nil {
				t.Fatal(err)
			}
			checkServer(t, c, tenant)
		})
	}
	t.Run("no such tenant", func(t *testing.T) {
		c := newClient(t, s.URL, authzenclient.WithTenant("nobody"))
		wantDeny(t, c.Evaluate(t.Context(), ask("u00", "read", "d01")), authzenclient.Refused)
	})
}

func checkServer(t *testing.T, c *authzenclient.Client, tenant string) {
	t.Helper()
	for q, want := range map[[3]string]bool{
		{"u00", "read", "d01"}: true, {"u00", "read", "d00"}: false, {"u01", "read", "d01"}: tenant == "acme", {"u00", "delete", "d01"}: false, {"x", "read", "d01"}: false,
	} {
		request := ask(q[0], q[1], q[2])
		d := c.Evaluate(t.Context(), request)
		if d.Permitted() != want || d.Err() != nil || d.ID() == "" {
			t.Errorf("%v: %v, want %v", q, d, want)
		}
		if kept := d.ReasonUser() == "Documents are kept."; kept != (q[1] == "delete") {
			t.Errorf("%v: %q", q, d.ReasonUser())
		}
	}
	checkBatches(t, c)
	checkSearches(t, c)
}

func checkBatches(t *testing.T, c *authzenclient.Client) {
	t.Helper()
	permit, deny := ask("u00", "read", "d01"), ask("u00", "read", "d00")
	for semantic, want := range map[evaluation.Semantic]string{"": "PDP", evaluation.ExecuteAll: "PDP", evaluation.DenyOnFirstDeny: "PDS", evaluation.PermitOnFirstPermit: "PSS"} {
		got := ""
		for _, d := range c.EvaluateBatch(t.Context(), semantic, permit, deny, permit) {
			got += letter(t, d)
		}
		if got != want {
			t.Errorf("%q: got %s, want %s", semantic, got, want)
		}
	}
}

// Searches find exactly what evaluations permit.
func checkSearches(t *testing.T, c *authzenclient.Client) {
	t.Helper()
	want := map[string]bool{}
	for n := range 23 {
		if user := fmt.Sprintf("u%02d", n); c.Evaluate(t.Context(), ask(user, "read", "d01")).Permitted() {
			want["user "+user] = true
		}
		if doc := fmt.Sprintf("d%02d", n); c.Evaluate(t.Context(), ask("u00", "read", doc)).Permitted() {
			want["doc "+doc] = true
		}
	}
	want["action read"], want["action write"] = true, true
	got := map[string]bool{}
	for r, err := range c.SearchSubjects(t.Context(), ask("", "read", "d01")) {
		if err != nil {
			t.Fatal(err)
		}
		got[r.Type+" "+r.ID] = true
	}
	for r, err := range c.SearchResources(t.Context(), ask("u00", "read", "")) {
		if err != nil {
			t.Fatal(err)
		}
		got[r.Type+" "+r.ID] = true
	}
	for r, err := range c.SearchActions(t.Context(), ask("u00", "", "d01")) {
		if err != nil {
			t.Fatal(err)
		}
		got["action "+r.Name] = true
	}
	if !maps.Equal(got, want) || len(got) < 20 {
		t.Errorf("got %v, want %v", got, want)
	}
}
