package capability_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"policy-service/evaluation"
	"policy-service/pdp/internal/capability"
	"policy-service/pdp/internal/ledger/ledgertest"
	"policy-service/pdp/pdptest/etcdtest"
)

func of(person string) func(*capability.New) { return func(n *capability.New) { n.Person = person } }

// grants tries to grant a capability, and reports whether the limits let it.
func (r *record) grants(t testing.TB, s *capability.Store, n capability.New) bool {
	t.Helper()
	g, err := s.Grant(t.Context(), n, "grant of "+n.Token.ID)
	if limit := (*capability.LimitError)(nil); errors.As(err, &limit) {
		return false
	}
	must(t, err)
	must(t, r.Decide("grant of "+n.Token.ID))
	must(t, g.Spent(t.Context()))
	return true
}

// granted is how many of so many requests are granted.
func (r *record) granted(t testing.TB, s *capability.Store, requests int, request func(n int) capability.New) (granted int) {
	t.Helper()
	for n := range requests {
		if r.grants(t, s, request(n)) {
			granted++
		}
	}
	return granted
}

// TestPersons: a person has one share, whatever holders it is of and whatever it hands on, and takes nothing of what another person of
// the same holder has, nor of what that holder has for no person. A holder in all has half of its tenant.
func TestPersons(t *testing.T) {
	t.Parallel()
	r := newRecord()
	o := r.options()
	o.Limits = capability.Limits{MaxLivePerHolder: 3, MaxLivePerTenant: 20, NewPerMinutePerHolder: 1000}
	s := mustOpen(t, quick(t), o)
	by := func(holder string, change ...func(*capability.New)) func(int) capability.New {
		return func(int) capability.New { return asked(s, r.Now, holder, change...) }
	}
	parent := r.mustGrant(t, s, asked(s, r.Now, "app", of("eve"), deep(1)))
	for _, c := range []struct {
		name           string
		requests, want int
		request        func(int) capability.New
	}{
		{"of eve, handed on for alice", 1, 1, by("helper", handedOn(parent), of("alice"))},
		{"of eve by 200 holders", 200, 1, func(n int) capability.New { return asked(s, r.Now, fmt.Sprint("app", n), of("eve")) }},
		{"of eve, handed on", 3, 0, by("helper", handedOn(parent))},
		{"of alice by the same holder", 4, 3, by("app", of("alice"))},
		{"of the same holder for nobody", 4, 3, by("app")},
		{"of the helper for nobody", 4, 3, by("helper")},
		{"of more persons of the same holder", 20, 2, func(n int) capability.New { return asked(s, r.Now, "app", of(fmt.Sprint("person", n))) }},
		{"of another holder in the same tenant", 4, 3, by("other")},
	} {
		if got := r.granted(t, s, c.requests, c.request); got != c.want {
			t.Errorf("%s: %d are granted, want %d", c.name, got, c.want)
		}
	}
	for person, want := range map[string]int{"eve": 3, "alice": 3, "person0": 1, "nobody": 0} {
		page, next, err := s.List(t.Context(), capability.Filter{Tenant: "acme", Person: person}, "", 50)
		if err != nil || next != "" || len(page) != want {
			t.Errorf("%s has %d: %v", person, len(page), err)
		}
	}
	if n, err := s.RevokeMany(t.Context(), capability.Filter{Tenant: "acme", Person: "eve"}, "warden", ""); n != 3 || err != nil {
		t.Errorf("%d are revoked: %v", n, err)
	}
	if got := r.granted(t, s, 4, by("app", of("eve"))); got != 2 { // the holder has half of its tenant
		t.Errorf("%d are granted of eve again", got)
	}
	r.Pass(31 * 24 * time.Hour)
	s.Work(t.Context())
	s.Work(t.Context())
	wantForgotten(t, s)
}

// TestPersonsAsk: a person asks so often, whatever holders it is of, and keeps no other of the same holder from asking.
func TestPersonsAsk(t *testing.T) {
	t.Parallel()
	r := newRecord()
	o := r.options()
	o.Limits.NewPerMinutePerHolder = 2
	s := mustOpen(t, quick(t), o)
	app := evaluation.Ref{Type: "agent", ID: "app"}
	for n := range 200 {
		holder := app
		if n > 2 {
			holder.ID = fmt.Sprint("app", n)
		}
		if err := s.Admit("acme", capability.OwnerOf("eve", holder)); (err == nil) != (n < 2) {
			t.Fatalf("request %d of eve: %v", n, err)
		}
	}
	for _, person := range []string{"alice", ""} {
		must(t, s.Admit("acme", capability.OwnerOf(person, app)))
	}
	must(t, s.Admit("other", capability.OwnerOf("eve", app)))
}

// TestPersonAtTwoReplicas: the share of a person is one at all processes that write to one etcd, and so is that of a holder.
func TestPersonAtTwoReplicas(t *testing.T) {
	t.Parallel()
	var proofs ledgertest.Proofs[capability.Step]
	var stores [2]*capability.Store
	logs, prefix := [2]*record{newRecord(), newRecord()}, t.TempDir()
	logs[1].N = 1_000_000 // ids differ
	for n := range stores {
		o := logs[n].options()
		o.Engine, o.Origin = etcdtest.Engine(t, prefix, capability.Known), fmt.Sprint("place", n)
		o.Prove, o.Verify = proofs.Prove(o.Origin, logs[n].Attest), proofs.Verify
		o.Limits = capability.Limits{MaxLivePerHolder: 3, MaxLivePerTenant: 10, NewPerMinutePerHolder: 1000}
		stores[n] = mustOpen(t, "", o)
	}
	for _, c := range []struct {
		person string
		want   int
	}{{"eve", 3}, {"alice", 2}, {"mia", 0}} { // of five that the holder has
		granted := 0
		for n := range 8 {
			if at := n % 2; logs[at].grants(t, stores[at], asked(stores[at], start, "app", of(c.person))) {
				granted++
			}
		}
		if granted != c.want {
			t.Errorf("%d are granted of %s, want %d", granted, c.person, c.want)
		}
		page, _, err := stores[1].List(t.Context(), capability.Filter{Tenant: "acme", Person: c.person}, "", 50)
		if err != nil || len(page) != c.want {
			t.Errorf("the other replica lists %d of %s: %v", len(page), c.person, err)
		}
	}
}
