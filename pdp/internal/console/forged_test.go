package console_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// coreForged is a post that nobody's own page sent.
type coreForged struct {
	name    string
	headers []string // beside the cookie
	fields  map[string]string
	want    int
}

const coreFormType = "application/x-www-form-urlencoded"

// A form decides only if a page of the same session sent it, that page's own form, for that approval request and
// version. Nothing else decides anything.
func TestForgedPosts(t *testing.T) {
	t.Parallel()
	c := openCore(t, coreWith{})
	id, otherID := c.waits("deploy"), c.waits("other")
	to := "/approvals/" + id + "/decision"
	mia, twin, eve := c.browser(), c.browser(), c.browser()
	mia.logIn("mia")
	twin.logIn("mia")
	eve.logIn("eve")
	own, other := mia.fields("/approvals/"+id, to), mia.fields("/approvals/"+otherID, "/approvals/"+otherID+"/decision")
	fields := func(change map[string]string) map[string]string {
		all := map[string]string{"decision": "approve", "reason": "r", "token": own["token"], "version": own["version"], "shown": own["shown"]}
		maps.Copy(all, change)
		return all
	}
	token := func(b *coreBrowser, page, action string) map[string]string {
		return fields(map[string]string{"token": b.fields(page, action)["token"]})
	}
	site := func(values ...string) []string {
		headers := []string{"Content-Type", coreFormType}
		for _, value := range values {
			headers = append(headers, "Sec-Fetch-Site", value)
		}
		return headers
	}
	long := strings.Repeat("x", 64<<10)
	for _, f := range []coreForged{
		{"no Sec-Fetch-Site", site(), fields(nil), 403},
		{"same-site", site("same-site"), fields(nil), 403},
		{"cross-site", site("cross-site"), fields(nil), 403},
		{"none", site("none"), fields(nil), 403},
		{"empty", site(""), fields(nil), 403},
		{"other case", site("Same-Origin"), fields(nil), 403},
		{"list", site("same-origin, same-origin"), fields(nil), 403},
		{"two headers", site("same-origin", "same-origin"), fields(nil), 403},
		{"two headers that differ", site("same-origin", "cross-site"), fields(nil), 403},
		{"Origin does not count", append(site(), "Origin", strings.TrimSuffix(c.URL, "/pdp/console")), fields(nil), 403},
		{"no token", site("same-origin"), fields(map[string]string{"token": ""}), 403},
		{"token of another session of the same person", site("same-origin"), token(twin, "/approvals/"+id, to), 403},
		{"token of another approval request", site("same-origin"), token(mia, "/approvals/"+otherID, "/approvals/"+otherID+"/decision"), 403},
		{"token of another form", site("same-origin"), token(mia, "/approvals", "/logout"), 403},
		{"another version than the token's", site("same-origin"), fields(map[string]string{"version": "2"}), 403},
		{"no version", site("same-origin"), fields(map[string]string{"version": ""}), 403},
		{"version that is no number", site("same-origin"), fields(map[string]string{"version": "one"}), 403},
		{"another digest of what was shown than the token's", site("same-origin"), fields(map[string]string{"shown": other["shown"]}), 403},
		{"no digest of what was shown", site("same-origin"), fields(map[string]string{"shown": ""}), 403},
		{"changed token", site("same-origin"), fields(map[string]string{"token": own["token"][1:] + "A"}), 403},
		{"too large", site("same-origin"), fields(map[string]string{"reason": long}), 413},
		{"JSON", []string{"Content-Type", "application/json", "Sec-Fetch-Site", "same-origin"}, fields(nil), 415},
		{"text", []string{"Content-Type", "text/plain", "Sec-Fetch-Site", "same-origin"}, fields(nil), 415},
		{"parts", []string{"Content-Type", "multipart/form-data; boundary=a", "Sec-Fetch-Site", "same-origin"}, fields(nil), 415},
		{"no type", []string{"Sec-Fetch-Site", "same-origin"}, fields(nil), 415},
		{"no UTF-8", site("same-origin"), fields(map[string]string{"reason": "\xff"}), 400},
	} {
		var body []string
		for _, name := range slices.Sorted(maps.Keys(f.fields)) {
			body = append(body, name, f.fields[name])
		}
		mia.do(http.MethodPost, to, coreForm(body...), f.headers...).is(t, f.name, f.want)
		c.undecided(id)
		c.undecided(otherID)
	}
	all := coreForm("decision", "approve", "reason", "r", "token", own["token"], "version", own["version"], "shown", own["shown"])
	same := site("same-origin")
	for name, got := range map[string]coreAnswer{
		"a field twice":         mia.do(http.MethodPost, to, all+"&decision=deny", same...),
		"token twice":           mia.do(http.MethodPost, to, all+"&token="+own["token"], same...),
		"semicolons":            mia.do(http.MethodPost, to, strings.ReplaceAll(all, "&", ";"), same...),
		"broken escape":         mia.do(http.MethodPost, to, all+"&x=%zz", same...),
		"fields in the query":   mia.do(http.MethodPost, to+"?"+all, "", same...),
		"GET":                   mia.do(http.MethodGet, to+"?"+all, "", same...),
		"GET of the page":       mia.do(http.MethodGet, "/approvals/"+id+"?"+all, "", same...),
		"HEAD":                  mia.do(http.MethodHead, to+"?"+all, "", same...),
		"PUT":                   mia.do(http.MethodPut, to, all, same...),
		"method in a header":    mia.do(http.MethodGet, to, all, append(same, "X-HTTP-Method-Override", "POST")...),
		"nobody":                c.browser().do(http.MethodPost, to, all, same...),
		"eve with mia's token":  eve.do(http.MethodPost, to, all, same...),
		"another id, one token": mia.do(http.MethodPost, "/approvals/"+otherID+"/decision", all, same...),
		"revoke with it":        mia.do(http.MethodPost, "/approvals/"+id+"/revoke", all, same...),
		"doubled slash":         mia.do(http.MethodPost, "/approvals//"+id+"/decision", all, same...),
		"dots":                  mia.do(http.MethodPost, "/approvals/x/../"+id+"/decision", all, same...),
		"slash at the end":      mia.do(http.MethodPost, to+"/", all, same...),
		"escaped":               mia.do(http.MethodPost, "/approvals%2f"+id+"/decision", all, same...),
	} {
		if got.Status < 400 && name != "GET of the page" {
			t.Errorf("%s: got %d to %q", name, got.Status, got.To)
		}
	}
	c.undecided(id)
	c.undecided(otherID)

	// The same form, sent by its page, decides.
	if got := mia.do(http.MethodPost, to, all, same...); got.Status != http.StatusSeeOther {
		t.Fatalf("got %d %s", got.Status, got.Body)
	}
	has(t, c.ask("pep", http.MethodGet, "/v1/approvals/"+id, ""), `"status":"approved"`, `"via":"console"`)
	// It is of an old version now: the same once more changes nothing, and says that it counts; anything else is refused.
	mia.do(http.MethodPost, to, all, same...).is(t, "the answer", http.StatusSeeOther)
	mia.do(http.MethodPost, to, coreForm("decision", "approve", "reason", "s", "token", own["token"], "version", own["version"], "shown", own["shown"]), same...).is(t, "the answer", http.StatusConflict)
	if got := c.ask("pep", http.MethodGet, "/v1/approvals/"+id, ""); strings.Count(got, `"decision":"approve"`) != 1 {
		t.Errorf("got %s", got)
	}
}

// undecided checks that nobody has said anything about an approval request.
func (c *core) undecided(id string) {
	c.t.Helper()
	if got := c.ask("pep", http.MethodGet, "/v1/approvals/"+id, ""); !strings.Contains(got, `"status":"pending"`) || strings.Contains(got, `"said":[{`) {
		c.t.Errorf("it is decided: %s", got)
	}
}

// Nobody is logged in or out by another page.
func TestForgedLoginAndLogout(t *testing.T) {
	t.Parallel()
	c := openCore(t, coreWith{})
	b := c.browser()
	for _, site := range [][]string{nil, {"cross-site"}, {"same-site"}, {"none"}, {"same-origin", "same-origin"}} {
		headers := []string{"Content-Type", coreFormType}
		for _, value := range site {
			headers = append(headers, "Sec-Fetch-Site", value)
		}
		if got := b.do(http.MethodPost, "/login", coreForm("key", c.key["eve"]), headers...); got.Status != http.StatusForbidden || got.Header.Get("Set-Cookie") != "" {
			t.Errorf("%v: got %d", site, got.Status)
		}
	}
	if got := b.get("/login?key=" + c.key["eve"]); got.Status != http.StatusOK || got.Header.Get("Set-Cookie") != "" || strings.Contains(got.Body, c.key["eve"]) {
		t.Errorf("got %d %s", got.Status, got.Body)
	}
	b.logIn("mia")
	id, token := c.waits("deploy"), b.fields("/approvals", "/logout")["token"]
	for name, got := range map[string]coreAnswer{
		"GET":         b.get("/logout?token=" + token),
		"cross-site":  b.do(http.MethodPost, "/logout", coreForm("token", token), "Content-Type", coreFormType, "Sec-Fetch-Site", "cross-site"),
		"no token":    b.send("/logout"),
		"other token": b.send("/logout", "token", b.fields("/approvals/"+id, "/approvals/"+id+"/decision")["token"]),
	} {
		if got.Status < 400 {
			t.Errorf("%s: got %d", name, got.Status)
		}
		if !b.isIn() {
			t.Fatalf("%s logs out", name)
		}
	}
}

// A page of another program on the same host is of the same origin to a browser. Its scripts and frames get no page of the
// console, with the tokens of its forms, and send no form.
func TestAnotherPageOfTheHostReadsNoFormToken(t *testing.T) {
	t.Parallel()
	c := openCore(t, coreWith{oidc: true})
	id := c.waits("deploy")
	to := "/approvals/" + id + "/decision"
	mia := c.browser()
	mia.logIn("mia")
	own := mia.fields("/approvals/"+id, to)
	form := coreForm("decision", "approve", "reason", "r", "token", own["token"], "version", own["version"], "shown", own["shown"])
	for name, sent := range map[string][]string{
		"fetch":            {"Sec-Fetch-Dest", "empty", "Sec-Fetch-Mode", "cors"},
		"fetch, no-cors":   {"Sec-Fetch-Dest", "empty", "Sec-Fetch-Mode", "no-cors"},
		"frame":            {"Sec-Fetch-Dest", "iframe", "Sec-Fetch-Mode", "navigate"},
		"object":           {"Sec-Fetch-Dest", "object", "Sec-Fetch-Mode", "navigate"},
		"script":           {"Sec-Fetch-Dest", "script", "Sec-Fetch-Mode", "no-cors"},
		"mode alone":       {"Sec-Fetch-Mode", "same-origin"},
		"destination":      {"Sec-Fetch-Dest", "empty"},
		"two of a kind":    {"Sec-Fetch-Dest", "document", "Sec-Fetch-Dest", "empty", "Sec-Fetch-Mode", "navigate"},
		"nothing said":     {"Sec-Fetch-Dest", "", "Sec-Fetch-Mode", ""},
		"of another case ": {"Sec-Fetch-Dest", "Document", "Sec-Fetch-Mode", "navigate"},
	} {
		sent = append(sent, "Sec-Fetch-Site", "same-origin")
		for _, page := range []string{"", "/approvals", "/approvals/" + id, "/login", "/login/oidc", "/login/callback?state=x&code=y"} {
			if got := mia.get(page, sent...); got.Status != http.StatusForbidden || strings.Contains(got.Body, "token") {
				t.Errorf("%s gets %q: %d %s", name, page, got.Status, got.Body)
			}
		}
		for _, action := range []string{to, "/login", "/logout"} {
			mia.do(http.MethodPost, action, form, append(sent, "Content-Type", coreFormType)...).is(t, fmt.Sprintf("%s sends the form of %s", name, action), http.StatusForbidden)
		}
		for _, file := range []string{"/style.css", "/console.js", "/icon.svg"} { // pages load them so, and nobody's data is there
			mia.get(file, sent...).is(t, fmt.Sprintf("%s gets %s", name, file), http.StatusOK)
		}
	}
	c.undecided(id)
	visit := []string{"Sec-Fetch-Dest", "document", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Site", "same-origin", "Content-Type", coreFormType}
	mia.do(http.MethodPost, to, form, visit...).is(t, "one's own form", http.StatusSeeOther)
}
