package console_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"policy-service/pdp/pdptest/browsertest"
)

func TestBrowserLoginByKey(t *testing.T) {
	t.Parallel()
	onScreens(t, flowExtremes, func(t *testing.T, f *flow, screen []browsertest.Option) {
		p := browsertest.Open(t, f.URL, screen...)
		p.Goto("/console/")
		if got := p.Path(); got != "/console/login" {
			t.Errorf("whoever is not logged in gets to %s", got)
		}
		p.Type("pk_nobody_has_this_one")
		p.Answers(http.StatusUnauthorized, func() { p.Press("Enter") })
		if p.Has("textbox", "pk_nobody") || strings.Contains(p.Tree(), "pk_nobody") {
			t.Error("the page shows the key that was typed")
		}
		f.logIn(p, "alice")
		if got := p.Path(); got != "/console/approvals" {
			t.Errorf("after the login at %s", got)
		}
		for _, cookie := range p.Cookies() {
			if !cookie.HTTPOnly || strings.Contains(cookie.Value, f.secret["alice"]) {
				t.Errorf("cookie %+v", cookie)
			}
		}
	})
}

// TestBrowserLogOut looks for what a browser may still know of somebody who has left.
func TestBrowserLogOut(t *testing.T) {
	t.Parallel()
	onScreens(t, flowExtremes, func(t *testing.T, f *flow, screen []browsertest.Option) {
		id := f.push("agent-release")
		p := f.open("alice", screen...)
		p.Loads(func() { p.Click("link", "agent-release") })
		p.Loads(func() { p.Click("button", "Log out") })
		for range 2 {
			p.Back()
			if strings.Contains(p.Tree(), "agent-release") || p.Has("button", "Approve") {
				t.Errorf("the way back leads to\n%s", p.Text())
			}
		}
		p.Goto("/console/approvals/" + id)
		if !strings.HasPrefix(p.Path(), "/console/login") {
			t.Errorf("without a login at %s", p.Path())
		}
		if len(p.Cookies()) > 0 {
			t.Errorf("cookies %v", p.Cookies())
		}
		f.untouched(id)
	})
}

// TestBrowserSessionEnds has a person who has typed a reason when their session ends, in each of the ways in which it can. They
// decide nothing, and after a login they can.
func TestBrowserSessionEnds(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		ends func(f *flow, p *browsertest.Page)
		then string // who logs in then
	}{
		"nobody used it": {func(f *flow, _ *browsertest.Page) { f.Advance(30*time.Minute + time.Second) }, "alice"},
		"it is old": {func(f *flow, p *browsertest.Page) {
			tab := p.Tab()
			for range 17 { // somebody uses it all the time, in another tab
				f.Advance(29 * time.Minute)
				tab.Goto("/console/approvals")
			}
		}, "alice"},
		"another tab logs out": {func(_ *flow, p *browsertest.Page) {
			tab := p.Tab()
			tab.Goto("/console/approvals")
			tab.Loads(func() { tab.Click("button", "Log out") })
		}, "alice"},
		"the key is revoked": {func(f *flow, _ *browsertest.Page) { f.revoke("alice") }, "frank"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := openFlow(t)
			id := f.asksLong("agent-release")
			p := f.open("alice", browsertest.WithoutScript())
			p.Goto("/console/approvals/" + id)
			p.Type(flowReason)
			test.ends(f, p)
			p.Answers(http.StatusUnauthorized, func() { p.Click("button", "Approve") })
			f.untouched(id)
			p.Loads(func() { p.Click("link", "Log in") })
			f.logIn(p, test.then)
			if p.Path() != "/console/approvals/"+id {
				t.Errorf("after the login at %s", p.Path())
			}
			p.Type(flowReason)
			p.Loads(func() { p.Click("button", "Approve") })
			f.decided(id, "approved", byConsole("approve", test.then, flowReason))
		})
	}
}

// asksLong files an approval request that waits for days.
func (f *flow) asksLong(agent string) string {
	f.t.Helper()
	return f.asks(agent, "backup.restore", `{"to":"yesterday"}`)
}

// revoke revokes somebody's API key, and returns when the API knows that.
func (f *flow) revoke(who string) {
	f.t.Helper()
	flowMust(f.t, f.keys.Revoke(who))
	limit := time.Now().Add(time.Minute)
	for f.Get("/v1/approvals", "Authorization", "Bearer "+f.secret[who]).Status != http.StatusUnauthorized {
		if time.Now().After(limit) {
			f.t.Fatal("the revoked key is still taken")
		}
	}
}
