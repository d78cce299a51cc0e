package server_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"policy-service/pdp/internal/server"
	"policy-service/pdp/pdptest/etcdtest"
)

// A clock that is ahead for a while has no proof taken twice: neither when it is put right, nor by a server that starts with the
// right time. Proofs that are made now go on, some of them with a nonce, and the proof of a request for a capability is taken once
// as well.
func TestAClockThatWasAhead(t *testing.T) {
	t.Parallel()
	w := openWallet(t)
	w.Advance(2 * time.Minute)
	g := w.asksFor(http.StatusCreated, nil, "read")
	asked, err := json.Marshal(w.asking(nil, "read"))
	must(t, err)
	asks := func(want int) {
		t.Helper()
		if status, text := w.do("wallet", "POST", "/v1/capabilities", string(asked)); status != want || want != http.StatusCreated && !strings.Contains(text, "proof_replayed") {
			t.Errorf("a request: %d %s, want %d", status, text, want)
		}
	}
	asks(http.StatusCreated)
	shown := w.call(g, "b:read").proved(t)
	w.is("allow", shown)
	w.Set(72 * time.Second)
	for range 200 { // whatever is to be forgotten is
		w.is("allow", w.call(g, "b:read"))
	}
	w.Set(-72 * time.Second)
	w.is("proof_replayed", shown)
	asks(http.StatusBadRequest)
	w.is("allow", w.call(g, "b:read"))

	w.Set(10 * time.Minute)
	ahead := w.call(g, "b:read").proved(t)
	w.is("allow", ahead)
	w.restart(func() { w.Set(-10 * time.Minute) })
	w.is("proof_stale", ahead)
	for range 3 {
		w.Advance(200 * time.Second)
		again := w.call(g, "b:read")
		again.claim.Nonce = w.is("nonce_required", again).Capability.Nonce
		w.is("allow", again)
	}
	w.is("nonce_required", ahead)
	w.Advance(time.Minute)
	w.is("allow", w.call(g, "b:read"))
}

// A replica whose clock is three minutes off takes no proofs, and says why. It has none forgotten that others took, and the others
// go on.
func TestAReplicaWithAWrongClock(t *testing.T) {
	t.Parallel()
	g := openGroup(t, 3, etcdtest.Start(t, etcdtest.Options{Members: 1}))
	var all []*wallet
	for n, c := range g.all {
		must(t, c.Stop(t.Context()))
		c.open(capabilityBundle(), g.config(n), func(c *server.Config) { c.PublicURL = issuer })
		all = append(all, &wallet{counter: c, holder: newHolder(t, 1)})
	}
	for _, w := range all {
		w.Advance(2 * time.Minute)
	}
	know := func(skew float64) {
		eventually(t, fmt.Sprint("all know of a difference of ", skew), func() bool {
			return !slices.ContainsFunc(all, func(one *wallet) bool { _, is := one.ready(); return is.Cluster.Skew != skew })
		})
	}
	for _, w := range all { // what the others have of its clock is from before, and differs by two minutes, until they hear of it again
		w.Set(3 * time.Minute)
		know(180)
		w.Set(-3 * time.Minute)
		know(0)
	}
	a, b, c := all[0], all[1], all[2]
	made := 0
	takes := func(w *wallet, from granted) string {
		made++
		s := w.call(from, "b:read")
		s.claim.ID = fmt.Sprint("a-proof-with-number-", made)
		outcome, _ := w.shoot(s)
		return outcome
	}
	takesProofs(t, all...)
	granted := a.asksFor(http.StatusCreated, nil, "read")
	shown := a.call(granted, "b:read").proved(t)
	a.is("allow", shown)
	for _, by := range []time.Duration{3 * time.Minute, -3 * time.Minute} {
		c.Set(by)
		if got := takes(c, granted); got != "clock_skew" {
			t.Errorf("by %v: at once it is %q", by, got)
		}
		ask, err := json.Marshal(c.asking(nil, "read"))
		must(t, err)
		if status, text := c.do("wallet", "POST", "/v1/capabilities", string(ask)); status != http.StatusServiceUnavailable || !strings.Contains(text, "clock_skew") {
			t.Errorf("by %v: a request is answered %d %s", by, status, text)
		}
		know(180)
		for _, w := range []*wallet{a, b} {
			if got := takes(w, granted); got != "allow" {
				t.Errorf("by %v: at another it is %q", by, got)
			}
			w.is("proof_replayed", shown)
		}
		c.is("clock_skew", shown)
		c.Set(-by)
		takesProofs(t, c)
		if got := takes(c, granted); got != "allow" {
			t.Errorf("by %v and put right: it is %q", by, got)
		}
		c.is("proof_replayed", shown)
	}
}
