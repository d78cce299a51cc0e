package server_test

import (
	"net/http"
	"testing"
	"time"

	"policy-service/evaluation/capability"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/pdptest/etcdtest"
)

// A nonce that one replica gave is taken by another, also after that one started again, for the same key alone, and a proof with
// it is taken once by all of them. Once etcd was restored, which forgets the proofs that were taken, no nonce of before is good.
func TestClusterNonces(t *testing.T) {
	t.Parallel()
	g := openGroup(t, 2, etcdtest.Start(t, etcdtest.Options{Members: 1}))
	var all []*wallet
	start := func(n int) {
		must(t, g.all[n].Stop(t.Context()))
		g.all[n].open(capabilityBundle(), g.config(n), func(c *server.Config) { c.PublicURL = issuer })
	}
	for n, c := range g.all {
		start(n)
		all = append(all, &wallet{counter: c, holder: newHolder(t, 1)})
	}
	a, b := all[0], all[1]
	takesProofs(t, all...)
	granted := a.asksFor(http.StatusCreated, nil, "read")
	with := func(nonce string) shot {
		s := a.call(granted, "b:read")
		s.claim.Nonce = nonce
		return s
	}
	nonce := a.is("nonce_required", with("")).Capability.Nonce
	shown := with(nonce).proved(t)
	b.is("allow", shown)
	a.is("proof_replayed", shown)
	b.is("nonce_required", with("v1.99999999999.x"))
	start(1)
	takesProofs(t, b)
	b.is("allow", with(nonce))
	b.is("proof_replayed", shown)

	b.holder = newHolder(t, 2)
	others := b.asksFor(http.StatusCreated, nil, "read")
	stolen := b.call(others, "b:read")
	stolen.claim.ID, stolen.claim.Nonce = "proof-of-another", nonce
	b.is("nonce_required", stolen)

	dir := g.copyOf()
	late := with(nonce).proved(t)
	a.is("allow", late)
	g.etcd.PutBack(dir)
	for n, one := range g.all {
		eventually(t, "it is found", func() bool { _, is := one.ready(); return is.State != nil })
		start(n)
	}
	for _, one := range all {
		eventually(t, "it goes on", func() bool { _, is := one.ready(); return is.State == nil && is.Status == "ready" })
		takesProofs(t, one)
		one.is("nonce_required", late)
	}
}

// takesProofs waits until replicas know that their clocks are right.
func takesProofs(t *testing.T, all ...*wallet) {
	t.Helper()
	for _, one := range all {
		eventually(t, "it takes proofs", one.TakesProofs)
	}
}

// Etcd is restored, and does not know what was granted after the copy, nor that this was revoked. The list of before says that it does
// not count, and what was revoked of before does not count either.
func TestClusterListsOfARestoredEtcd(t *testing.T) {
	t.Parallel()
	g := openGroup(t, 2, etcdtest.Start(t, etcdtest.Options{Members: 1}))
	var all []*wallet
	start := func(n int) {
		must(t, g.all[n].Stop(t.Context()))
		g.all[n].open(capabilityBundle(), g.config(n), func(c *server.Config) { c.PublicURL = issuer })
	}
	for n, c := range g.all {
		start(n)
		all = append(all, &wallet{counter: c, holder: newHolder(t, 1)})
	}
	a, b := all[0], all[1]
	takesProofs(t, all...)
	kept, revoked := a.asksFor(http.StatusCreated, offline, "read"), a.asksFor(http.StatusCreated, offline, "write")
	dir := g.copyOf()
	later := a.asksFor(http.StatusCreated, offline, "read")
	for _, one := range []granted{revoked, later} {
		b.reply("warden", "POST", "/v1/capabilities/"+one.ID+"/revoke", `{"reason":"enough"}`).is(t, "revoke", http.StatusOK)
	}
	g.etcd.PutBack(dir)
	for n, one := range g.all {
		eventually(t, "it is found", func() bool { _, is := one.ready(); return is.State != nil })
		start(n)
	}
	for _, one := range all {
		eventually(t, "it goes on", func() bool { _, is := one.ready(); return is.State == nil && is.Status == "ready" })
	}
	for _, one := range all {
		one.Advance(15 * time.Second) // the policies are asked again, which could not be while state stood still
	}
	for _, one := range all {
		path, _ := listedAt(t, kept)
		eventually(t, "there is a list", func() bool { return one.Get(path).Status == http.StatusOK })
		for what, is := range map[string]struct {
			granted
			want capability.State
		}{"kept": {kept, capability.StateValid}, "revoked": {revoked, capability.StateInvalid}, "later": {later, capability.StateInvalid}} {
			if _, state, _ := one.list(is.granted); state != is.want {
				t.Errorf("%s: it is %v, want %v", what, state, is.want)
			}
		}
	}
}
