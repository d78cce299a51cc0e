package console_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

func TestLoginPage(t *testing.T) {
	t.Parallel()
	c := openCore(t, coreWith{oidc: true})
	b := c.browser()
	b.get("").leads(t, "the answer", http.StatusSeeOther, "/pdp/console/approvals")
	got := b.get("/approvals?tab=done")
	if got.Status != http.StatusSeeOther || got.To != "/pdp/console/login?next=%2Fapprovals%3Ftab%3Ddone" {
		t.Fatalf("got %d to %s", got.Status, got.To)
	}
	issuer, err := url.Parse(c.provider.URL)
	coreMust(t, err)
	got = b.get("/login?next=/approvals%3Ftab=done")
	for _, want := range []string{
		`href="/pdp/console/login/oidc?next=%2Fapprovals%3Ftab%3Ddone"`, issuer.Host, `name="next" value="/approvals?tab=done"`, `action="/pdp/console/login"`,
	} {
		if !strings.Contains(got.Body, want) {
			t.Errorf("the login page has no %s: %s", want, got.Body)
		}
	}
	if at := strings.Index(got.Body, "login/oidc"); at > strings.Index(got.Body, `name="key"`) {
		t.Error("the key comes first")
	}
	if got := b.send("/login", "key", c.key["mia"]+"\n", "next", "/approvals?tab=done"); got.To != "/pdp/console/approvals?tab=done" {
		t.Errorf("got %d to %s", got.Status, got.To)
	}
	b.get("/login?next=/approvals?tab=said").leads(t, "whoever is in", http.StatusSeeOther, "/pdp/console/approvals?tab=said")
}

// A login leads to a page about approvals, whatever a link says.
func TestNextIsOurs(t *testing.T) {
	t.Parallel()
	c := openCore(t, coreWith{oidc: true})
	for next, kept := range map[string]bool{
		"/approvals":                              true,
		"/approvals?tab=done&subject=user%2Fx":    true,
		"/approvals/01a1-ab":                      true,
		"":                                        false,
		"/":                                       false,
		"//attacker.example":                      false,
		"//attacker.example/approvals":            false,
		"///approvals":                            false,
		"/approvals//attacker.example":            false,
		"/approvals/../logout":                    false,
		"/approvals/%2e%2e/logout":                false,
		"/approvals/..%2flogout":                  false,
		"/approvals/%5c%5cattacker.example":       false,
		"/approvals%0d%0aSet-Cookie:x":            false,
		"/approvals\r\nSet-Cookie: x=y":           false,
		"/approvals\\@attacker.example":           false,
		"/approvalsx":                             false,
		"/approvals.attacker.example":             false,
		"/approvals@attacker.example":             false,
		"/login":                                  false,
		"/logout":                                 false,
		"approvals":                               false,
		"https://attacker.example/approvals":      false,
		"https:/approvals":                        false,
		"javascript:alert(1)":                     false,
		"\\\\attacker.example":                    false,
		"/\\attacker.example":                     false,
		"/\t/attacker.example":                    false,
		" /approvals":                             false,
		"/approvals#x":                            false,
		"/approvals/\u2028":                       false,
		"/pdp/console/approvals":                  false,
		"/approvals?" + strings.Repeat("x", 2000): false,
	} {
		want := "/pdp/console/approvals"
		if kept {
			want = "/pdp/console" + next
		}
		c.browser().send("/login", "key", c.key["mia"], "next", next).leads(t, fmt.Sprintf("%q: by key", next), http.StatusSeeOther, want)
		b := c.browser()
		b.get(c.toCallback(b, "next", next)).leads(t, fmt.Sprintf("%q: by the provider", next), http.StatusSeeOther, want)
	}
}

// An address has five tries that fail in a minute. A right key is none of them, and waits for none: whoever tries may be a
// stranger behind the same proxy.
func TestARightKeyNeverWaitsForWrongOnes(t *testing.T) {
	t.Parallel()
	c := openCore(t, coreWith{})
	b := c.browser()
	try := func(key string, want int) {
		t.Helper()
		got := b.send("/login", "key", key)
		if got.Status != want || strings.Contains(got.Body, key) && key != "" {
			t.Errorf("got %d, want %d: %s", got.Status, want, got.Body)
		}
		if want == http.StatusTooManyRequests && got.Header.Get("Retry-After") == "" {
			t.Error("it does not say when to try again")
		}
	}
	wrong := c.key["mia"][:len(c.key["mia"])-1] + "~"
	for range 4 {
		try(wrong, http.StatusUnauthorized)
		try(c.key["mia"], http.StatusSeeOther)
		c.clock.Advance(time.Second)
	}
	try("", http.StatusUnauthorized)
	try(wrong, http.StatusTooManyRequests)
	try(c.key["mia"], http.StatusSeeOther)
	c.clock.Advance(56*time.Second - 1) // the first failed a minute less a nanosecond ago
	try(wrong, http.StatusTooManyRequests)
	c.clock.Advance(1)
	try(wrong, http.StatusUnauthorized)
	try(wrong, http.StatusTooManyRequests)
	try(c.key["mia"], http.StatusSeeOther)

	coreMust(t, c.keys.Revoke("eve"))
	try(c.key["eve"], http.StatusTooManyRequests)
}

// The log says who came and went, and holds no secret.
func TestLoginLog(t *testing.T) {
	t.Parallel()
	c := openCore(t, coreWith{oidc: true})
	b := c.browser()
	b.send("/login", "key", "pk_wrong")
	b.logIn("mia")
	session := b.cookie("__Host-session")
	token := b.fields("/approvals", "/logout")["token"]
	b.send("/logout", "token", token)
	callback := c.toCallback(b)
	b.get(callback)
	b.get(callback)
	u, err := url.Parse(callback)
	coreMust(t, err)
	log := c.log.String()
	for _, want := range []string{
		`msg="a login to the console was refused" by=key address=127.0.0.1`,
		`msg="somebody logged in to the console" caller=key:mia by=key address=127.0.0.1`,
		`msg="somebody logged out of the console" caller=key:mia address=127.0.0.1`,
		`caller=jwt:` + c.provider.URL + `#0-mia by=oidc`,
		`msg="a login to the console was refused" by=oidc`,
	} {
		if !strings.Contains(log, want) {
			t.Errorf("the log has no %s", want)
		}
	}
	for _, secret := range []string{"pk_wrong", c.key["mia"], session, token, u.Query().Get("code"), u.Query().Get("state"), b.cookie("__Host-session")} {
		if secret == "" || strings.Contains(log, secret) {
			t.Errorf("the log has %q", secret)
		}
	}
	if t.Failed() {
		t.Log(log)
	}
}

// Nobody fills the log who is refused again and again.
func TestRefusalsDoNotFillTheLog(t *testing.T) {
	t.Parallel()
	c := openCore(t, coreWith{oidc: true})
	b := c.browser()
	for range 50 {
		b.send("/login", "key", "pk_wrong")
		b.get("/login/callback?state=x&code=y")
	}
	if n := strings.Count(c.log.String(), "a login to the console was refused"); n == 0 || n > 20 {
		t.Errorf("%d lines", n)
	}
	c.clock.Advance(time.Minute)
	before := len(c.log.String())
	b.send("/login", "key", "pk_wrong")
	if len(c.log.String()) == before {
		t.Error("a minute later nothing is logged")
	}
}
