package authzenclient_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"policy-service/evaluation/authzenclient"
	"policy-service/pdp/pdptest"
)

// TestTenantsOfARealServer: each client asks about its own tenant, whichever client made it.
func TestTenantsOfARealServer(t *testing.T) {
	t.Parallel()
	c := newClient(t, pdptest.Start(t, docs()).URL, authzenclient.WithBreaker(2, time.Hour))
	acme := tenant(t, c, "acme")
	for range 2 {
		checkTenant(t, c, false)
		checkTenant(t, acme, true)
		checkTenant(t, tenant(t, acme, "default"), false)
		for range 3 { // would open the circuit of a client that has this tenant alone
			wantDeny(t, tenant(t, acme, "nobody").Evaluate(t.Context(), ask("u01", "read", "d01")), authzenclient.Refused)
		}
	}
	if err := acme.Discover(t.Context()); err != nil {
		t.Fatal(err)
	}
	checkTenant(t, acme, true)
	checkTenant(t, c, false)
	for _, name := range []string{"", " ", "../default", "a/b", "acme ", "_a", strings.Repeat("a", 64)} {
		if c, err := c.ForTenant(name); c != nil || err == nil {
			t.Errorf("%q is the name of a tenant", name)
		}
	}
}

func tenant(t *testing.T, c *authzenclient.Client, name string) *authzenclient.Client {
	t.Helper()
	c, err := c.ForTenant(name)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// checkTenant asks about a document that acme's own people read, and about one that all do.
func checkTenant(t *testing.T, c *authzenclient.Client, acme bool) {
	t.Helper()
	for user, want := range map[string]bool{"u00": true, "u01": acme} {
		if d := c.Evaluate(t.Context(), ask(user, "read", "d01")); d.Permitted() != want || d.Err() != nil {
			t.Errorf("%s: %v, want %v", user, d, want)
		}
	}
}

// TestTenantsShareABreaker: a PDP that does not answer is left alone by the clients for all tenants. What is refused for one
// tenant closes the way to no other.
func TestTenantsShareABreaker(t *testing.T) {
	t.Parallel()
	clock := time.Now()
	c, s := scripted(t, []step{answer(404, `{}`)}, reads(&clock), authzenclient.WithBreaker(2, time.Minute))
	for _, status := range []int{401, 403, 404} {
		s.steps = []step{answer(status, `{}`)}
		for n := range 3 {
			wantDeny(t, tenant(t, c, fmt.Sprint("t", n)).Evaluate(t.Context(), question), authzenclient.Refused)
		}
	}
	s.steps = []step{answer(500, `{}`)}
	wantDeny(t, tenant(t, c, "a").Evaluate(t.Context(), question), authzenclient.Unavailable)
	s.steps = []step{answer(404, `{}`)}
	wantDeny(t, tenant(t, c, "nobody").Evaluate(t.Context(), question), authzenclient.Refused) // no sign of life
	s.steps = []step{answer(500, `{}`)}
	wantDeny(t, tenant(t, c, "b").Evaluate(t.Context(), question), authzenclient.Unavailable)
	asked := s.asked.Load()
	for _, c := range []*authzenclient.Client{c, tenant(t, c, "a"), tenant(t, tenant(t, c, "b"), "c")} {
		wantDeny(t, c.Evaluate(t.Context(), question), authzenclient.Open)
	}
	if s.asked.Load() != asked {
		t.Error("the PDP was asked")
	}
	clock = clock.Add(time.Minute)
	s.steps = []step{answer(404, `{}`)}
	wantDeny(t, tenant(t, c, "nobody").Evaluate(t.Context(), question), authzenclient.Refused) // it does not close the circuit
	s.steps = []step{answer(500, `{}`)}
	wantDeny(t, tenant(t, c, "a").Evaluate(t.Context(), question), authzenclient.Unavailable)
	wantDeny(t, tenant(t, c, "b").Evaluate(t.Context(), question), authzenclient.Open)
	clock = clock.Add(time.Minute)
	s.steps = []step{yes}
	for _, name := range []string{"a", "b"} {
		if d := tenant(t, c, name).Evaluate(t.Context(), question); !d.Permitted() {
			t.Error(d)
		}
	}
	s.steps = []step{answer(401, `{}`)}
	for range 2 { // of the client itself it counts
		wantDeny(t, c.Evaluate(t.Context(), question), authzenclient.Refused)
	}
	wantDeny(t, c.Evaluate(t.Context(), question), authzenclient.Open)
}

// TestTokenOfATenant: the token is that for the tenant that is asked about.
func TestTokenOfATenant(t *testing.T) {
	t.Parallel()
	var got []string
	c, _ := scripted(t, []step{func(r *http.Request) (*http.Response, error) {
		got = append(got, r.URL.Path+" "+r.Header.Get("Authorization"))
		return yes(r)
	}}, authzenclient.WithTenantToken(func(_ context.Context, tenant string) (string, error) { return "key-of-" + tenant, nil }))
	for _, c := range []*authzenclient.Client{c, tenant(t, c, "acme"), tenant(t, c, "default")} {
		if d := c.Evaluate(t.Context(), question); !d.Permitted() {
			t.Error(d)
		}
	}
	const path = "/access/v1/evaluation Bearer key-of-"
	if want := []string{path + "default", "/tenants/acme" + path + "acme", path + "default"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}
