package server_test

import (
	"fmt"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"policy-service/pdp/internal/console/oidctest"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/etcdtest"
)

// openConsoles are replicas with consoles. People reach them by one address, as cookies have it.
func openConsoles(t *testing.T, replicas int, options ...pdptest.Option) *group {
	t.Helper()
	g := openGroup(t, replicas, etcdtest.Start(t, etcdtest.Options{Members: 1}))
	for n := range g.all {
		g.withConsole(n, options...)
	}
	return g
}

func (g *group) withConsole(n int, options ...pdptest.Option) {
	g.t.Helper()
	must(g.t, g.all[n].Stop(g.t.Context()))
	g.start(n, append([]pdptest.Option{withConsole(server.ConsoleConfig{PublicURL: "http://127.0.0.1:1/console"})}, options...)...)
}

// page asks a replica for a page.
func (g *group) page(by *http.Client, n int, path string) consoleAnswer {
	g.t.Helper()
	return consoleGet(g.t, by, g.all[n].URL+"/console"+path)
}

// in checks whether a browser is logged in at each replica.
func (g *group) in(what string, by *http.Client, want bool) {
	g.t.Helper()
	for n := range g.all {
		if got := g.page(by, n, "/approvals"); (got.status == http.StatusOK) != want || !want && !strings.HasPrefix(got.where, "/console/login") {
			g.t.Errorf("%s: replica %d answers %d to %q", what, n, got.status, got.where)
		}
	}
}

// loggedIn is a browser in which somebody logged in at a replica.
func (g *group) loggedIn(who string, n int) *http.Client {
	g.t.Helper()
	jar, err := cookiejar.New(nil)
	must(g.t, err)
	by := consoleBrowser(nil)
	by.Jar = jar
	form := url.Values{"key": {strings.TrimPrefix(g.key[who], "Bearer ")}}
	consolePost(g.t, by, g.all[n].URL+"/console/login", form).is(g.t, who+" logs in", http.StatusSeeOther)
	return by
}

// copied is a browser with the same cookies, which no answer to the first one changes.
func (g *group) copied(by *http.Client) *http.Client {
	g.t.Helper()
	jar, err := cookiejar.New(nil)
	must(g.t, err)
	at, err := url.Parse(g.all[0].URL)
	must(g.t, err)
	jar.SetCookies(at, by.Jar.Cookies(at))
	other := consoleBrowser(nil)
	other.Jar = jar
	return other
}

// advance moves the clocks of all replicas.
func (g *group) advance(by time.Duration) {
	for _, one := range g.all {
		one.Advance(by)
	}
}

// agrees waits until all replicas have said that they have the same time: what was on its way while the clocks moved ends sessions.
func (g *group) agrees() {
	g.t.Helper()
	for _, one := range g.all {
		eventually(g.t, "the clocks agree", func() bool { return one.ClocksAgree(len(g.all) - 1) })
	}
}

var logOutForm = regexp.MustCompile(`(?s)action="([^"]*/logout)".*?name="token" value="([^"]*)"`)

// logsOut sends the form of a page of one replica to another.
func (g *group) logsOut(by *http.Client, from, to int) consoleAnswer {
	g.t.Helper()
	form := logOutForm.FindStringSubmatch(g.page(by, from, "/approvals").body)
	if form == nil {
		g.t.Fatal("the page has no form to log out")
	}
	return consolePost(g.t, by, g.all[to].URL+form[1], url.Values{"token": {form[2]}})
}

// Who is logged in at one replica is logged in at all, and a link, a page and a form of one are good at each. Who has logged out at
// one is logged out at all.
func TestConsoleOfReplicas(t *testing.T) {
	t.Parallel()
	g := openConsoles(t, 3)
	by := g.loggedIn("mia", 0)
	g.in("a session of replica 0", by, true)
	id := g.all[1].asks("pep", tool("push", push)).Approval.ID
	if got := g.page(by, 2, "/approvals/"+id); got.status != http.StatusOK || !strings.Contains(got.body, id) {
		t.Errorf("a link to what was filed elsewhere: got %d", got.status)
	}
	// In use at any replica, it goes on for longer than it may be unused.
	for n := range 3 {
		g.advance(20 * time.Minute)
		g.agrees()
		g.page(by, n%3, "/approvals").is(t, "a session in use", http.StatusOK)
	}
	g.withConsole(2)
	g.in("after a restart of a replica", by, true)
	copied := g.copied(by)
	g.logsOut(by, 0, 1).is(t, "logging out with the form of another replica", http.StatusSeeOther)
	g.in("after logging out", by, false)
	g.in("the cookie after logging out", copied, false)

	by = g.loggedIn("mia", 1)
	g.advance(31 * time.Minute)
	g.in("unused for long", by, false)
	by = g.loggedIn("mia", 1)
	for range 24 {
		g.advance(20 * time.Minute)
		g.page(by, 2, "/approvals")
	}
	g.in("after its longest time", by, false)

	// A caller has so many sessions and no more.
	g.agrees()
	first, second := g.loggedIn("noah", 0), g.loggedIn("noah", 1)
	for n := range 49 {
		g.loggedIn("noah", n%3)
	}
	g.in("one more than a caller may have ends the oldest", first, false)
	g.in("the next oldest", second, true)
}

// consoleValues are the values of the consoles in etcd, as another program reads and changes them.
type consoleValues struct {
	t      *testing.T
	client *clientv3.Client
}

func (g *group) consoleValues() consoleValues {
	g.t.Helper()
	client, err := etcdtest.Dial(g.net[0].Endpoints()...)
	must(g.t, err)
	g.t.Cleanup(func() { _ = client.Close() })
	return consoleValues{g.t, client}
}

const consoleKeys = "/policy-service/v1/console/"

// get returns the values of a kind, by their keys.
func (v consoleValues) get(kind string) map[string]string {
	v.t.Helper()
	got, err := v.client.Get(v.t.Context(), consoleKeys+"v/"+kind, clientv3.WithPrefix())
	must(v.t, err)
	all := map[string]string{}
	for _, kv := range got.Kvs {
		all[string(kv.Key)] = string(kv.Value)
	}
	return all
}

func (v consoleValues) change(change clientv3.Op) {
	v.t.Helper()
	_, err := etcdtest.Change(v.t.Context(), v.client, consoleKeys, change)
	must(v.t, err)
}

// A program that can write to etcd ends sessions, and brings none back.
func TestConsoleWriterToEtcd(t *testing.T) {
	t.Parallel()
	g := openConsoles(t, 2)
	etcd := g.consoleValues()
	sessions := func() map[string]string { return etcd.get("s/") }
	mia := g.loggedIn("mia", 0)
	mias := sessions()
	if len(mias) != 1 {
		t.Fatalf("etcd has %d sessions", len(mias))
	}
	for key, value := range mias {
		if strings.Contains(value, "pk_") || strings.Contains(value, strings.TrimPrefix(g.key["mia"], "Bearer ")) {
			t.Errorf("etcd has the key: %s", value)
		}
		copied := g.copied(mia)
		g.logsOut(mia, 0, 1).is(t, "logging out", http.StatusSeeOther)
		for range 3 { // at its first, second and third version
			etcd.change(clientv3.OpPut(key, value))
			g.in("a session that was put back", copied, false)
		}
		etcd.change(clientv3.OpDelete(key))

		noah := g.loggedIn("noah", 1)
		for noahs := range sessions() {
			etcd.change(clientv3.OpPut(noahs, value))
		}
		g.in("mia's session in the place of noah's", noah, false)
	}
}

// While etcd is away a page says so: nobody is asked to log in again, and the session goes on afterwards. After etcd was restored
// from a copy, no session of before counts: the copy may have some that were ended since.
func TestConsoleWithoutEtcd(t *testing.T) {
	t.Parallel()
	g := openConsoles(t, 2)
	by := g.loggedIn("mia", 0)
	g.in("a session", by, true)
	page := g.page(by, 1, "/approvals").body
	form := logOutForm.FindStringSubmatch(page)
	g.hasty = []int{1}
	g.withConsole(1)
	g.net[1].Cut()
	for what, got := range map[string]consoleAnswer{
		"a page":      g.page(by, 1, "/approvals"),
		"logging out": consolePost(t, by, g.all[1].URL+form[1], url.Values{"token": {form[2]}}),
		"logging in": consolePost(t, consoleBrowser(nil), g.all[1].URL+"/console/login",
			url.Values{"key": {strings.TrimPrefix(g.key["noah"], "Bearer ")}}),
	} {
		if got.status != http.StatusServiceUnavailable || got.header.Get("Retry-After") == "" || got.header.Get("Set-Cookie") != "" {
			t.Errorf("%s without etcd: got %d, %v", what, got.status, got.header)
		}
	}
	g.net[1].Heal()
	eventually(t, "etcd is there again", func() bool { return g.page(by, 1, "/approvals").status == http.StatusOK })

	ended := g.loggedIn("noah", 0)
	copied, dir := g.copied(ended), g.copyOf()
	g.logsOut(ended, 0, 0).is(t, "logging out", http.StatusSeeOther)
	g.etcd.PutBack(dir)
	g.hasty = nil
	for n, one := range g.all {
		eventually(t, "it is found", func() bool { _, is := one.ready(); return is.State != nil })
		g.withConsole(n)
	}
	for _, one := range g.all {
		eventually(t, "it goes on", func() bool { _, is := one.ready(); return is.State == nil && is.Status == "ready" })
	}
	g.in("ended after the copy was made", copied, false)
	g.in("of before the copy", by, false)
	g.in("begun since", g.loggedIn("mia", 1), true)
}

// A login that began at one replica goes on at another, which has the claims of the person then, and a third one has them, too.
func TestConsoleOfReplicasByIssuer(t *testing.T) {
	t.Parallel()
	p := oidctest.Start(t, func() time.Time { return pdptest.Now })
	p.Change(func(p *oidctest.Provider) {
		p.Person = map[string]any{"sub": "0-mia", "name": "Mia", "email": "mia", "groups": []string{"leads", "others"}}
	})
	g := openConsoles(t, 3, func(c *server.Config) {
		c.Console.OIDC = &auth.OIDC{
			Issuer: p.URL, ClientID: oidctest.Client, Principal: &auth.PrincipalClaim{Type: "user", Claim: "email"},
			Grants: []auth.ClaimGrant{{Claim: "groups", Value: "leads", Permissions: []auth.Permission{auth.Approve}, Tenants: []string{"*"}}},
		}
	})
	jar, err := cookiejar.New(nil)
	must(t, err)
	by := consoleBrowser(nil)
	by.Jar = jar
	to := g.page(by, 0, "/login/oidc")
	to.is(t, "the way to the provider", http.StatusSeeOther)
	back := consoleGet(t, by, to.where)
	back.is(t, "the provider", http.StatusFound)
	at, err := url.Parse(back.where)
	must(t, err)
	callback := fmt.Sprint("/login/callback?", at.RawQuery)
	waiting := g.copied(by)
	g.page(by, 1, callback).is(t, "the answer at another replica", http.StatusSeeOther)
	g.in("logged in", by, true)
	if got := g.page(by, 2, "/approvals"); !strings.Contains(got.body, "user::&#34;mia&#34;") || !strings.Contains(got.body, "Mia") {
		t.Errorf("replica 2 does not know the person: %s", got.body)
	}
	if got := g.page(waiting, 2, callback); got.status == http.StatusSeeOther {
		t.Errorf("the same answer once more: got %d to %q", got.status, got.where)
	}
	g.in("by the same answer", waiting, false)
}

// What a program that can write to etcd has damaged ends sessions, and keeps no one from logging out or in.
func TestConsoleDamagedInEtcd(t *testing.T) {
	t.Parallel()
	g := openConsoles(t, 2)
	etcd := g.consoleValues()
	damage := func(kind string) {
		all := etcd.get(kind)
		if len(all) == 0 {
			t.Fatalf("etcd has no %s", kind)
		}
		for key := range all {
			etcd.change(clientv3.OpPut(key, "damaged"))
		}
	}
	again := func(by *http.Client, who string, n int) {
		t.Helper()
		form := url.Values{"key": {strings.TrimPrefix(g.key[who], "Bearer ")}}
		consolePost(t, by, g.all[n].URL+"/console/login", form).is(t, who+" logs in again", http.StatusSeeOther)
		g.in(who+" is in again", by, true)
	}
	mia := g.loggedIn("mia", 0)
	damage("s/")
	g.in("a damaged session", mia, false)
	again(mia, "mia", 1)

	damage("n/")
	g.in("a session in a damaged list", mia, true)
	copied := g.copied(mia)
	g.logsOut(mia, 0, 1).is(t, "logging out, with a damaged list", http.StatusSeeOther)
	g.in("after logging out", copied, false)
	damage("n/")
	again(mia, "mia", 0)

	damage("n/")
	g.advance(11 * time.Minute) // from now on a login looks for sessions that are over
	g.in("in use", g.loggedIn("noah", 0), true)
	g.in("in use", g.loggedIn("noah", 1), true)
}
