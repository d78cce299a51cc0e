package server_test

import (
	"fmt"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"policy-service/evaluation/capability"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/pdptest"
)

// ownConsole is a console at an address of its own: that of the service is the issuer of tokens, and nowhere.
func ownConsole() pdptest.Option { return withConsole(server.ConsoleConfig{Listen: "127.0.0.1:0"}) }

var heldLink = regexp.MustCompile(`href="/console/capabilities/(cap_[0-9a-z]+)"`)

// heldOn are the ids of the capabilities that a page lists.
func heldOn(body string) (ids []string) {
	for _, m := range heldLink.FindAllStringSubmatch(body, -1) {
		ids = append(ids, m[1])
	}
	return ids
}

// linkOn is where a link of a page leads, "" if there is none with the text.
func linkOn(body, text string) string {
	m := regexp.MustCompile(`<a href="([^"]*)"[^>]*>` + text + `</a>`).FindStringSubmatch(body)
	if m == nil {
		return ""
	}
	return html.UnescapeString(m[1])
}

// constraintOf is a constraint of its JSON.
func constraintOf(t testing.TB, text string) capability.Constraint {
	t.Helper()
	v, _ := objectOf(t, `{"v":`+text+`}`).Get("v")
	c, err := capability.ParseConstraint(v)
	must(t, err)
	return c
}

// A person who takes capabilities back sees those of their tenants, with what is open-ended marked, and whatever stands in
// their words as text. Nobody else sees a trace of them.
func TestConsoleOfCapabilities(t *testing.T) {
	t.Parallel()
	w := openWallet(t, ownConsole())
	w.Advance(time.Minute)
	w.grant("acme-admin", []string{"acme"}, `user::"ada"`, auth.CapabilityAdmin)
	w.welcome("admin", `user::"olga"`, auth.CapabilityAdmin, auth.Approve)
	const hostile = `<script>alert(1)</script> & "bot"`
	open := w.asksFor(http.StatusCreated, nil, "*")
	few := w.asksFor(http.StatusCreated, func(a *capability.Ask) {
		a.MaxUses, a.Arguments = 5, capability.Arguments{
			"<i>": constraintOf(t, `"x"`), "free": constraintOf(t, `{"constraint_type":"wildcard"}`), "*": constraintOf(t, `{"constraint_type":"wildcard"}`),
		}
	}, "read", "<b>bold</b>")
	odd := w.asksFor(http.StatusCreated, func(a *capability.Ask) { a.Holder.ID, a.Tenant = hostile, "acme" }, "1", "2", "3", "4", "5", "*")
	at := w.ConsoleURL() + "/capabilities"
	see := func(by *http.Client, to string, want int) string {
		t.Helper()
		got := consoleGet(t, by, to)
		got.is(t, to, want)
		return got.body
	}

	_, listed := w.do("warden", "GET", "/v1/capabilities?tenant=default", "")
	if has(t, listed, `"<i>":"exact"`, `"free":"wildcard"`, `"*":"wildcard"`); strings.Count(listed, "arguments") != 1 {
		t.Errorf("arguments that may be any are listed: %s", listed)
	}

	admin, acme := w.consoleIn("admin"), w.consoleIn("acme-admin")
	all := see(admin, at, http.StatusOK)
	if got := heldOn(all); len(got) != 3 {
		t.Errorf("the page has %v", got)
	}
	has(t, all, "agent/bot", "5", "b:read", `&lt;script&gt;`, "b:&lt;b&gt;bold&lt;/b&gt;", "&lt;i&gt;", "and 2 more", "bound",
		w.holder.Key().Thumbprint(), `href="/console/capabilities" aria-current="true">`, "0 of 5")
	for text, times := range map[string]int{"all tools": 2, "any number": 2, "any arguments": 2, "any": 1, "other arguments are any": 1} {
		if n := strings.Count(all, `<strong class="open">`+text+`</strong>`); n != times {
			t.Errorf("%q is marked %d times, want %d: %s", text, n, times, all)
		}
	}
	for _, body := range []string{all, see(acme, at, http.StatusOK), see(acme, at+"/"+odd.ID, http.StatusOK), see(admin, at+"/"+few.ID, http.StatusOK)} {
		for _, never := range []string{"<script>alert", "<b>bold", "<i>"} {
			if strings.Contains(body, never) {
				t.Errorf("a text makes an element: %s", body)
			}
		}
	}
	if got := heldOn(see(acme, at, http.StatusOK)); len(got) != 1 || got[0] != odd.ID {
		t.Errorf("acme's admin sees %v", got)
	}
	nothing := see(acme, at+"/cap_0199f3a27c1e7d3a8f00c3b2a1908f7e", http.StatusNotFound)
	if strings.ReplaceAll(see(acme, at+"/"+open.ID, http.StatusNotFound), open.ID, "") != nothing {
		t.Error("of another tenant is another answer than of none")
	}
	if got := heldOn(see(acme, at+"?tenant=default", http.StatusOK)); got != nil {
		t.Errorf("acme's admin finds %v", got)
	}
	has(t, see(acme, at+"/"+odd.ID, http.StatusOK), "b:5", `<strong class="open">all tools</strong>`)
	has(t, see(admin, at+"?holder=bot", http.StatusBadRequest), "is no holder", `value="bot"`)
	has(t, see(admin, at+"?audience=c", http.StatusOK), "Nothing matches the filter.", "Clear")

	// Others have no page and no link.
	for _, who := range []string{"mia", "wallet", "pep"} {
		by := w.consoleIn(who)
		for _, path := range []string{"", "/" + open.ID} {
			if body := see(by, at+path, http.StatusNotFound); body != see(by, w.ConsoleURL()+"/approvals/none", http.StatusNotFound) {
				t.Errorf("%s gets another page than for what there is not: %s", who, body)
			}
		}
	}
	if body := see(w.consoleIn("mia"), w.ConsoleURL()+"/approvals", http.StatusOK); strings.Contains(body, "/capabilities") {
		t.Error("who may take none back has a link")
	}
	if got := consoleGet(t, consoleBrowser(nil), at+"?state=all"); got.status != http.StatusSeeOther || got.where != "/console/login?next=%2Fcapabilities%3Fstate%3Dall" {
		t.Errorf("without a login: %d to %s", got.status, got.where)
	}
	if got := consoleGet(t, acme, w.ConsoleURL()+"/approvals"); got.status != http.StatusSeeOther || got.where != "/console/capabilities" {
		t.Errorf("who may not approve is led to %d %s", got.status, got.where)
	}
}

// The list goes on for as many pages as there are, in the same filter.
func TestConsoleOfCapabilitiesPages(t *testing.T) {
	t.Parallel()
	w := openWallet(t, ownConsole())
	w.Advance(time.Minute)
	want := map[string]bool{}
	for range 51 {
		want[w.asksFor(http.StatusCreated, nil, "read").ID] = true
	}
	ofAcme := w.asksFor(http.StatusCreated, func(a *capability.Ask) { a.Tenant = "acme" }, "read").ID
	w.grant("both-admin", []string{"default", "acme"}, "", auth.CapabilityAdmin)
	w.welcome("last", "", auth.CapabilityAdmin)
	both := w.consoleIn("both-admin")
	for query, tenant := range map[string]string{"": "acme", "?tenant=acme": "acme", "?tenant=default": "default"} {
		got := consoleGet(t, both, w.ConsoleURL()+"/capabilities"+query)
		has(t, got.body, `name="tenant" list="tenants" value="`+tenant+`"`, `<option value="acme"></option><option value="default"></option>`)
		if ids := heldOn(got.body); (tenant == "acme") != (len(ids) == 1 && ids[0] == ofAcme) {
			t.Errorf("%q has %v", query, ids)
		}
	}
	admin, at, pages := w.consoleIn("warden"), "/console/capabilities?tenant=default&holder=agent%3Abot", 0
	for ; at != ""; pages++ {
		got := consoleGet(t, admin, strings.TrimSuffix(w.ConsoleURL(), "/console")+at)
		got.is(t, at, http.StatusOK)
		for _, id := range heldOn(got.body) {
			if !want[id] {
				t.Errorf("%s comes twice, or is another's", id)
			}
			delete(want, id)
		}
		if first := linkOn(got.body, "First page"); (first != "") != (pages > 0) || !strings.Contains(got.body, `value="agent:bot"`) {
			t.Errorf("page %d leads back to %q", pages, first)
		}
		at = linkOn(got.body, "Next page")
	}
	if len(want) > 0 || pages != 2 {
		t.Errorf("%d pages leave out %v", pages, want)
	}
}

var revocation = regexp.MustCompile(`(?s)action="(/console/capabilities/[^"]*/revoke)".*?name="token" value="([^"]*)"`)

// A person takes a capability back with a reason, by a form of their own page, as long as they may. It goes on record with
// their name, and the next call is refused.
func TestConsoleRevokesCapability(t *testing.T) {
	t.Parallel()
	w := openWallet(t, ownConsole())
	w.Advance(time.Minute)
	w.welcome("admin", `user::"olga"`, auth.CapabilityAdmin)
	w.welcome("leaving", `user::"lena"`, auth.CapabilityAdmin)
	g, other := w.asksFor(http.StatusCreated, nil, "read"), w.asksFor(http.StatusCreated, nil, "read")
	of := func(by *http.Client, id string) (to, token string) {
		t.Helper()
		got := consoleGet(t, by, w.ConsoleURL()+"/capabilities/"+id)
		form := revocation.FindStringSubmatch(got.body)
		if got.status != http.StatusOK || form == nil {
			t.Fatalf("%s has no form: %d %s", id, got.status, got.body)
		}
		return strings.TrimSuffix(w.ConsoleURL(), "/console") + form[1], form[2]
	}
	admin, leaving := w.consoleIn("admin"), w.consoleIn("leaving")
	to, token := of(admin, g.ID)
	_, otherToken := of(admin, other.ID)
	leavingTo, leavingToken := of(leaving, g.ID)
	post := func(by *http.Client, token, reason string, header ...string) consoleAnswer {
		t.Helper()
		return consolePost(t, by, to, url.Values{"token": {token}, "reason": {reason}}, header...)
	}
	post(admin, "", "why").is(t, "without a token", http.StatusForbidden)
	post(admin, otherToken, "why").is(t, "with the token of another", http.StatusForbidden)
	post(leaving, token, "why").is(t, "with the token of another session", http.StatusForbidden)
	post(admin, token, "why", "Sec-Fetch-Site", "cross-site").is(t, "from another page", http.StatusForbidden)
	post(admin, token, "why", "Sec-Fetch-Dest", "empty").is(t, "by a script", http.StatusForbidden)
	consoleGet(t, admin, to+"?token="+token+"&reason=why").is(t, "by a link", http.StatusMethodNotAllowed)
	post(w.consoleIn("mia"), token, "why").is(t, "by a person who may not", http.StatusForbidden)
	consolePost(t, consoleBrowser(nil), to, url.Values{"token": {token}, "reason": {"why"}}).is(t, "without a login", http.StatusUnauthorized)
	empty := post(admin, token, " \n")
	empty.is(t, "without a reason", http.StatusUnprocessableEntity)
	has(t, empty.body, "Write why: it goes on record.", `aria-invalid="true"`)
	long := post(admin, token, strings.Repeat("x", 5000))
	long.is(t, "with a long reason", http.StatusBadRequest)
	has(t, long.body, "nothing was decided", strings.Repeat("x", 5000)+"</textarea>")
	w.is("allow", w.call(g, "b:read"))
	w.revoke("leaving")
	if got := consolePost(t, leaving, leavingTo, url.Values{"token": {leavingToken}, "reason": {"why"}}); got.status < 400 {
		t.Errorf("who has no right any more revokes: %d %s", got.status, got.body)
	}
	w.is("allow", w.call(g, "b:read"))

	for range 2 { // who clicks twice sees that it counts
		if got := post(admin, token, "the <laptop> is lost"); got.status != http.StatusSeeOther || got.where != "/console/capabilities/"+g.ID {
			t.Fatalf("got %d to %q: %s", got.status, got.where, got.body)
		}
	}
	w.is("revoked", w.call(g, "b:read"))
	w.is("allow", w.call(other, "b:read"))
	page := consoleGet(t, admin, w.ConsoleURL()+"/capabilities/"+g.ID)
	page.is(t, "the page after it", http.StatusOK)
	if has(t, page.body, "<h1>Revoked</h1>"); strings.Contains(page.body, "<textarea") {
		t.Errorf("it can be revoked again: %s", page.body)
	}
	for state, want := range map[string]string{"": other.ID, "active": other.ID, "revoked": g.ID, "all": g.ID + " " + other.ID} {
		got := consoleGet(t, admin, w.ConsoleURL()+"/capabilities?state="+state)
		if ids := strings.Join(heldOn(got.body), " "); ids != want {
			t.Errorf("in the state %q are %s, want %s", state, ids, want)
		}
	}
	_, log := w.do("auditor", "GET", "/v1/log/export", "")
	n := 0
	for line := range strings.SplitSeq(log, "\n") {
		if strings.Contains(line, `"event":"revoked"`) {
			n++
			has(t, line, `"by":"key:admin"`, "laptop", fmt.Sprintf("%q", g.ID))
		}
	}
	if n != 1 {
		t.Errorf("%d revocations are on record", n)
	}
}
