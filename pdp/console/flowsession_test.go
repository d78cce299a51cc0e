package console_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"policy-service/pdp/console/browsertest"
	"policy-service/pdp/pdptest"
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

// TestBrowserCookieOpensNoAPI asks the API with the cookie of a session, as a page of the console would.
func TestBrowserCookieOpensNoAPI(t *testing.T) {
	t.Parallel()
	f := openFlow(t)
	id := f.push("agent-release")
	p := f.open("alice")
	for _, path := range []string{"/v1/approvals", "/v1/approvals/" + id, "/v1/me"} {
		if status := browsertest.Eval[int](p, `fetch("`+path+`", {credentials: "include"}).then(r => r.status)`); status != http.StatusUnauthorized {
			t.Errorf("%s answers %d", path, status)
		}
	}
	p.Expect("401")
}

// TestBrowserUnderTLS has the cookies that a browser keeps to one host and to TLS.
func TestBrowserUnderTLS(t *testing.T) {
	t.Parallel()
	authority := pdptest.NewAuthority(t)
	f := openFlow(t, flowTLS(authority.Server()))
	f.Trust(authority)
	id := f.push("agent-release")
	p := f.open("alice", browsertest.AnyCertificate())
	cookies := p.Cookies()
	if len(cookies) != 1 || cookies[0].Name != "__Host-session" || !cookies[0].Secure || !cookies[0].HTTPOnly || cookies[0].SameSite != "Lax" {
		t.Errorf("cookies %+v", cookies)
	}
	p.Loads(func() { p.Click("link", "agent-release") })
	p.Type(flowReason)
	p.Loads(func() { p.Click("button", "Approve") })
	f.decided(id, "approved", byConsole("approve", "alice", flowReason))
}
