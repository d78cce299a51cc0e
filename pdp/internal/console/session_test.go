package console_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"policy-service/pdp/internal/console"
	"policy-service/pdp/pdptest"
)

// coreCookie is the cookie of that name that an answer sets.
func coreCookie(t *testing.T, got coreAnswer, name string) *http.Cookie {
	t.Helper()
	all := (&http.Response{Header: got.Header}).Cookies()
	var found []*http.Cookie
	for _, cookie := range all {
		if cookie.Name == name {
			found = append(found, cookie)
		}
	}
	if len(found) != 1 {
		t.Fatalf("the answer sets %q", got.Header["Set-Cookie"])
	}
	return found[0]
}

func TestSessionCookie(t *testing.T) {
	t.Parallel()
	c := openCore(t, coreWith{})
	got := coreCookie(t, c.browser().logIn("mia"), "__Host-session")
	if !got.Secure || !got.HttpOnly || got.SameSite != http.SameSiteLaxMode || got.Path != "/" || got.Domain != "" || len(got.Value) != 43 || got.MaxAge != 8*60*60 {
		t.Errorf("got %+v", got)
	}
	// On loopback without TLS no browser would take the name with __Host-.
	c = openCore(t, coreWith{options: func(o *console.Options) { o.Secure = false }})
	got = coreCookie(t, c.browser().logIn("mia"), "session")
	if got.Secure || !got.HttpOnly || got.SameSite != http.SameSiteLaxMode || got.Path != "/" || got.Domain != "" {
		t.Errorf("got %+v", got)
	}
}

// Without TLS the console answers at names of this machine alone: any other may lead here by the DNS of an attacker.
func TestHostOfPlainConsole(t *testing.T) {
	t.Parallel()
	c := openCore(t, coreWith{options: func(o *console.Options) { o.Secure = false }})
	for host, want := range map[string]int{
		"127.0.0.1": 200, "127.0.0.1:80": 200, "localhost:9": 200, "LOCALHOST": 200, "[::1]:7": 200, "[::1]": 200,
		"attacker.example": 421, "localhost.attacker.example": 421, "127.0.0.1.attacker.example:80": 421, "10.0.0.1": 421, "0.0.0.0": 421,
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.URL+"/login", nil)
		coreMust(t, err)
		r.Host = host
		got, err := http.DefaultClient.Do(r)
		coreMust(t, err)
		if _ = got.Body.Close(); got.StatusCode != want {
			t.Errorf("%s: got %d, want %d", host, got.StatusCode, want)
		}
	}
}

// A session ends at the very moment, and not a nanosecond before.
func TestSessionEnds(t *testing.T) {
	t.Parallel()
	c := openCore(t, coreWith{})
	b := c.browser()
	b.logIn("mia")
	c.clock.Advance(30*time.Minute - 1)
	if !b.isIn() {
		t.Error("it ended before it was idle for 30 minutes")
	}
	c.clock.Advance(30 * time.Minute)
	if b.isIn() {
		t.Error("it was idle for 30 minutes, and goes on")
	}
	b.logIn("mia")
	const step = 29 * time.Minute
	var age time.Duration
	for ; age+step < 8*time.Hour; age += step {
		c.clock.Advance(step)
		if !b.isIn() {
			t.Fatalf("it ended after %v", age)
		}
	}
	c.clock.Advance(8*time.Hour - age - 1)
	if !b.isIn() {
		t.Error("it ended before 8 h")
	}
	c.clock.Advance(1)
	if b.isIn() {
		t.Error("it goes on after 8 h")
	}
}

// A key that is revoked ends the sessions of its holder at the next request, and decides nothing.
func TestRevokedKeyEndsSession(t *testing.T) {
	t.Parallel()
	c := openCore(t, coreWith{})
	id := c.waits("deploy")
	b := c.browser()
	b.logIn("mia")
	fields := b.fields("/approvals/"+id, "/approvals/"+id+"/decision")
	coreMust(t, c.keys.Revoke("mia"))
	got := b.send("/approvals/"+id+"/decision", "decision", "approve", "reason", "r", "token", fields["token"], "version", fields["version"], "shown", fields["shown"])
	if got.Status != http.StatusUnauthorized || coreCookie(t, got, "__Host-session").MaxAge >= 0 {
		t.Errorf("got %d %q", got.Status, got.Header["Set-Cookie"])
	}
	has(t, c.ask("pep", http.MethodGet, "/v1/approvals/"+id, ""), `"status":"pending"`)
	if b.isIn() {
		t.Error("it is logged in")
	}
}

// Whoever gave a browser the id of a session has nothing of the login that follows.
func TestSessionFixation(t *testing.T) {
	t.Parallel()
	c := openCore(t, coreWith{})
	attacker, victim := c.browser(), c.browser()
	attacker.logIn("eve")
	planted := attacker.cookie("__Host-session")
	got := victim.do(http.MethodPost, "/login", coreForm("key", c.key["mia"]), "Cookie", "__Host-session="+planted,
		"Sec-Fetch-Site", "same-origin", "Content-Type", "application/x-www-form-urlencoded")
	if got.Status != http.StatusSeeOther || coreCookie(t, got, "__Host-session").Value == planted {
		t.Errorf("got %d %v", got.Status, got.Header["Set-Cookie"])
	}
	if attacker.isIn() {
		t.Error("the planted session goes on")
	}
	// An id that no login made opens nothing, and is not taken over by a login.
	c.browser().get("/approvals", "Cookie", "__Host-session="+strings.Repeat("A", 43)).is(t, "the answer", http.StatusSeeOther)
	// A second login of the same browser ends the first.
	first := victim.cookie("__Host-session")
	victim.logIn("mia")
	c.browser().get("/approvals", "Cookie", "__Host-session="+first).is(t, "the answer", http.StatusSeeOther)
}

// A cookie that another program of the same host may have planted beside ours, or that was changed, is no session.
func TestDoubtfulCookies(t *testing.T) {
	t.Parallel()
	c := openCore(t, coreWith{})
	b := c.browser()
	b.logIn("mia")
	id := b.cookie("__Host-session")
	for cookie, want := range map[string]int{
		"__Host-session=" + id:                                             http.StatusOK,
		"a=b; __Host-session=" + id + "; session=x":                        http.StatusOK,
		"__Host-session=" + id + "; __Host-session=" + id:                  http.StatusSeeOther,
		"__Host-session=x; __Host-session=" + id:                           http.StatusSeeOther,
		"session=" + id:                                                    http.StatusSeeOther,
		"__host-session=" + id:                                             http.StatusSeeOther,
		"__Host-session=" + id[:42]:                                        http.StatusSeeOther,
		"__Host-session=" + id + "A":                                       http.StatusSeeOther,
		"__Host-session=" + strings.ToLower(id):                            http.StatusSeeOther,
		"__Host-session=" + id + "=":                                       http.StatusSeeOther,
		"__Host-session=":                                                  http.StatusSeeOther,
		"__Host-session=" + strings.Repeat("x", 4000):                      http.StatusSeeOther,
		"__Host-session=" + id[:42] + string(coreOtherBits(id[len(id)-1])): http.StatusSeeOther, // the same bytes, written otherwise
	} {
		c.browser().get("/approvals", "Cookie", cookie).is(t, cookie, want)
	}
	// Two headers are two cookies.
	c.browser().get("/approvals", "Cookie", "__Host-session="+id, "Cookie", "__Host-session="+id).is(t, "the answer", http.StatusSeeOther)
	// The session opens pages, and nothing of the API.
	r := httptest.NewRequest(http.MethodGet, "/v1/me", nil)
	r.URL.Scheme, r.URL.Host, r.RequestURI = "https", "pdp.invalid", ""
	r.Header.Set("Cookie", "__Host-session="+id+"; session="+id)
	if got, err := c.api.RoundTrip(r); err != nil || got.StatusCode != http.StatusUnauthorized {
		t.Errorf("got %v, %v", got, err)
	}
}

// coreOtherBits is a last character that a lax reader takes for the same: the last two bits of 43 characters mean nothing.
func coreOtherBits(c byte) byte {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	return alphabet[strings.IndexByte(alphabet, c)^1]
}

// Of one caller's sessions the oldest goes; others are not touched.
func TestManySessionsOfOneCaller(t *testing.T) {
	t.Parallel()
	c := openCore(t, coreWith{})
	eve := c.browser()
	eve.logIn("eve")
	var all []*coreBrowser
	for range 51 {
		b := c.browser()
		b.logIn("mia")
		all = append(all, b)
	}
	if all[0].isIn() || !all[1].isIn() || !all[50].isIn() || !eve.isIn() {
		t.Errorf("of 51 sessions the first is in: %v, the second: %v, the last: %v, eve: %v", all[0].isIn(), all[1].isIn(), all[50].isIn(), eve.isIn())
	}
}

func TestLogOut(t *testing.T) {
	t.Parallel()
	c := openCore(t, coreWith{})
	b, other := c.browser(), c.browser()
	b.logIn("mia")
	other.logIn("mia")
	kept := b.cookie("__Host-session")
	got := b.send("/logout", "token", b.fields("/approvals", "/logout")["token"])
	if got.Status != http.StatusSeeOther || got.To != "/pdp/console/login" || coreCookie(t, got, "__Host-session").MaxAge >= 0 {
		t.Errorf("got %d to %s, %q", got.Status, got.To, got.Header["Set-Cookie"])
	}
	if b.isIn() || !other.isIn() {
		t.Error("logged out: not this session, or another")
	}
	c.browser().get("/approvals", "Cookie", "__Host-session="+kept).is(t, "the cookie that was kept", http.StatusSeeOther)
}

// A certificate that the API knows is no login, and takes nothing from one.
func TestCertificateIsNoLogin(t *testing.T) {
	t.Parallel()
	authority := pdptest.NewAuthority(t)
	c := openCore(t, coreWith{mtls: authority})
	b := c.browser(authority.Client("ops.example.com"))
	if got := b.get("/login"); got.Status != http.StatusOK || b.isIn() {
		t.Errorf("got %d to %s", got.Status, got.To)
	}
	b.logIn("mia")
	if got := b.get("/approvals"); got.Status != http.StatusOK || !strings.Contains(got.Body, "mia") || strings.Contains(got.Body, "mtls:") {
		t.Errorf("got %d %s", got.Status, got.Body)
	}
}
