package console_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"policy-service/pdp/internal/console/oidctest"
	"policy-service/pdp/internal/server/auth"
)

// come logs in at the provider.
func (c *core) come(b *coreBrowser) coreAnswer {
	c.t.Helper()
	return b.get(c.toCallback(b))
}

// refusesCallback checks that an answer to the callback logs nobody in, and says where to begin again.
func (c *core) refusesCallback(what string, b *coreBrowser, got coreAnswer, status int) {
	c.t.Helper()
	if got.Status != status || !strings.Contains(got.Body, `href="/pdp/console/login"`) {
		c.t.Errorf("%s: got %d, want %d: %s", what, got.Status, status, got.Body)
	}
	if b.cookie("__Host-session") != "" || b.cookie("__Host-login") != "" || b.isIn() {
		c.t.Errorf("%s: it is logged in, or the login waits on", what)
	}
	coreHeaders(c.t, what, got)
}

func TestOIDC(t *testing.T) {
	t.Parallel()
	c := openCore(t, coreWith{oidc: true})
	b := c.browser()
	to := b.get("/login/oidc?next=/approvals%3Ftab=said")
	coreHeaders(t, "the way to the provider", to)
	pending := coreCookie(t, to, "__Host-login")
	if !pending.Secure || !pending.HttpOnly || pending.SameSite != http.SameSiteLaxMode || pending.Path != "/" || pending.Domain != "" || pending.MaxAge != 600 {
		t.Errorf("got %+v", pending)
	}
	q, err := url.Parse(to.To)
	coreMust(t, err)
	for _, secret := range []string{q.Query().Get("state"), q.Query().Get("nonce"), "state", c.provider.URL} {
		hasNot(t, pending.Value, secret)
	}
	if got := q.Query().Get("redirect_uri"); got != c.URL+"/login/callback" {
		t.Errorf("redirect_uri is %s", got)
	}
	if got := q.Query().Get("scope"); got != "openid profile email" {
		t.Errorf("scope is %s", got)
	}
	got := b.get(b.get(to.To).To)
	if got.Status != http.StatusSeeOther || got.To != "/pdp/console/approvals?tab=said" || coreCookie(t, got, "__Host-login").MaxAge >= 0 {
		t.Fatalf("got %d to %q: %s", got.Status, got.To, got.Body)
	}
	if page := b.get("/approvals"); page.Status != http.StatusOK || !strings.Contains(page.Body, "user::&#34;mia&#34;") {
		t.Errorf("got %d %s", page.Status, page.Body)
	}
	// The session ends after an hour, though it is used.
	for range 3 {
		c.clock.Advance(19 * time.Minute)
		if !b.isIn() {
			t.Fatal("it ended")
		}
	}
	c.clock.Advance(3*time.Minute - 1)
	if !b.isIn() {
		t.Error("it ended before an hour")
	}
	c.clock.Advance(1)
	if b.isIn() {
		t.Error("it goes on after an hour")
	}
	// Whom no grant matches logs in, and may do nothing.
	c.provider.Change(func(p *oidctest.Provider) {
		p.Person = map[string]any{"sub": "0-eve", "name": "eve", "groups": []string{"others"}}
	})
	c.come(b).is(t, "the answer", http.StatusSeeOther)
}

// What the provider sends counts for the login that this browser began last, once.
func TestCallbackIsOfThisLogin(t *testing.T) {
	t.Parallel()
	c := openCore(t, coreWith{oidc: true})
	b, other := c.browser(), c.browser()
	mine, others := c.toCallback(b), c.toCallback(other)
	c.refusesCallback("the callback of another browser", b, b.get(others), 400)
	c.refusesCallback("one's own after that", b, b.get(mine), 400)
	c.refusesCallback("no cookie", c.browser(), c.browser().get(c.toCallback(other)), 400)

	first := c.toCallback(b)
	second := c.toCallback(b) // in another tab
	c.refusesCallback("the earlier of two", b, b.get(first), 400)
	c.refusesCallback("the later after that", b, b.get(second), 400)
	first, second = c.toCallback(b), c.toCallback(b)
	b.get(second).is(t, "the later of two", http.StatusSeeOther)
	if got := b.get(first); got.Status != http.StatusBadRequest || !b.isIn() {
		t.Errorf("the earlier after that: %d", got.Status)
	}

	b = c.browser()
	// A login waits for ten minutes.
	callback := c.toCallback(b)
	c.clock.Advance(10*time.Minute - 1)
	b.get(callback).is(t, "the answer", http.StatusSeeOther)
	b = c.browser()
	callback = c.toCallback(b)
	kept := b.cookie("__Host-login")
	c.clock.Advance(10 * time.Minute)
	c.refusesCallback("after ten minutes", b, b.get(callback), 400)
	c.refusesCallback("a changed cookie", b, b.get(callback, "Cookie", "__Host-login=A"+kept[1:]), 400)
	c.refusesCallback("an empty cookie", b, b.get(callback, "Cookie", "__Host-login="), 400)
	b.logIn("eve")
	c.refusesCallback("a session as the cookie", c.browser(), c.browser().get(callback, "Cookie", "__Host-login="+b.cookie("__Host-session")), 400)
	// The console has another provider meanwhile.
	b = c.browser()
	callback = c.toCallback(b)
	config := *c.config
	config.ClientID = "other"
	c.configure(config)
	c.refusesCallback("another client", b, b.get(callback), 400)
}

// Whoever has copied the cookie of a login that waits has nothing of it once the login was answered, whatever the answer was:
// the provider is not asked about another code.
func TestAPendingLoginAnswersOnce(t *testing.T) {
	t.Parallel()
	c := openCore(t, coreWith{oidc: true})
	for name, first := range map[string]func(q url.Values) int{
		"a good code":  func(url.Values) int { return http.StatusSeeOther },
		"a wrong code": func(q url.Values) int { q.Set("code", "x"); return http.StatusBadGateway },
		"an error":     func(q url.Values) int { q.Set("error", "access_denied"); return http.StatusForbidden },
	} {
		b := c.browser()
		callback, err := url.Parse(c.toCallback(b))
		coreMust(t, err)
		kept, q := b.cookie("__Host-login"), callback.Query()
		want := first(q)
		if got := b.get(c.URL + "/login/callback?" + q.Encode()); got.Status != want {
			t.Fatalf("%s: got %d", name, got.Status)
		}
		asked := c.provider.Asked("/token")
		thief := c.browser()
		c.refusesCallback(name+", and again", thief, thief.get(callback.String(), "Cookie", "__Host-login="+kept), 400)
		if c.provider.Asked("/token") != asked {
			t.Errorf("%s: the provider is asked again", name)
		}
	}
}

// An address has five exchanges in a minute that come to nothing: each asks the provider. Other addresses, logins that
// succeed and keys do not wait for them.
func TestFailedExchangesAreBounded(t *testing.T) {
	t.Parallel()
	c := openCore(t, coreWith{oidc: true})
	fails := func(want int) {
		t.Helper()
		b := c.browser()
		u, err := url.Parse(c.toCallback(b))
		coreMust(t, err)
		q := u.Query()
		q.Set("code", "x")
		u.RawQuery = q.Encode()
		got := b.get(u.String())
		c.refusesCallback("a wrong code", b, got, want)
		if want == http.StatusTooManyRequests && got.Header.Get("Retry-After") == "" {
			t.Error("it does not say when to try again")
		}
	}
	for range 4 {
		fails(http.StatusBadGateway)
		c.come(c.browser()).is(t, "a login between them", http.StatusSeeOther)
	}
	fails(http.StatusBadGateway)
	asked := c.provider.Asked("/token")
	fails(http.StatusTooManyRequests)
	if c.provider.Asked("/token") != asked {
		t.Error("the provider is asked all the same")
	}
	c.browser().logIn("mia")
	c.clock.Advance(time.Minute)
	fails(http.StatusBadGateway)
}

// Parameters of the callback that are changed, doubled or left out.
func TestCallbackParameters(t *testing.T) {
	t.Parallel()
	c := openCore(t, coreWith{oidc: true})
	for name, change := range map[string]struct {
		by   func(url.Values)
		want int
	}{
		"no state":      {func(q url.Values) { q.Del("state") }, 400},
		"empty state":   {func(q url.Values) { q.Set("state", "") }, 400},
		"other state":   {func(q url.Values) { q.Set("state", q.Get("state")[1:]+"A") }, 400},
		"two states":    {func(q url.Values) { q.Add("state", q.Get("state")) }, 400},
		"no code":       {func(q url.Values) { q.Del("code") }, 400},
		"two codes":     {func(q url.Values) { q.Add("code", "x") }, 400},
		"other code":    {func(q url.Values) { q.Set("code", "x") }, 502},
		"other issuer":  {func(q url.Values) { q.Set("iss", "https://attacker.example") }, 400},
		"empty issuer":  {func(q url.Values) { q.Set("iss", "") }, 400},
		"no issuer":     {func(q url.Values) { q.Del("iss") }, 400},
		"two issuers":   {func(q url.Values) { q.Add("iss", q.Get("iss")) }, 400},
		"an error":      {func(q url.Values) { q.Set("error", "access_denied") }, 403},
		"a false error": {func(q url.Values) { q.Set("error", "access_denied"); q.Set("state", "x") }, 400},
	} {
		b := c.browser()
		u, err := url.Parse(c.toCallback(b))
		coreMust(t, err)
		q := u.Query()
		change.by(q)
		u.RawQuery = q.Encode()
		c.refusesCallback(name, b, b.get(u.String()), change.want)
	}
	b := c.browser()
	u, err := url.Parse(c.toCallback(b))
	coreMust(t, err)
	q := url.Values{"state": {u.Query().Get("state")}, "error": {"<script>alert(1)</script>\u202e"}, "error_description": {"<b>SECRET"}}
	got := b.get("/login/callback?" + q.Encode())
	c.refusesCallback("markup as an error", b, got, 403)
	for _, never := range []string{"<script>a", "\u202e", "SECRET"} {
		if strings.Contains(got.Body, never) {
			t.Errorf("the page has %q: %s", never, got.Body)
		}
	}
	if got := b.do(http.MethodHead, c.toCallback(b), ""); got.Status != http.StatusMethodNotAllowed || b.cookie("__Host-login") == "" {
		t.Errorf("HEAD: got %d", got.Status)
	}
}

// ID tokens that are not for this login, whatever else they are.
func TestForeignIDTokens(t *testing.T) {
	t.Parallel()
	c := openCore(t, coreWith{oidc: true})
	now := func() int64 { return c.clock.Now().Unix() }
	for name, change := range map[string]func(map[string]any){
		"another nonce":         func(m map[string]any) { m["nonce"] = strings.Repeat("n", 43) },
		"no nonce":              func(m map[string]any) { delete(m, "nonce") },
		"another client":        func(m map[string]any) { m["aud"] = "other" },
		"another party":         func(m map[string]any) { m["azp"] = "other" },
		"another issuer":        func(m map[string]any) { m["iss"] = "https://attacker.example" },
		"expired":               func(m map[string]any) { m["exp"] = now() - 61 },
		"no end":                func(m map[string]any) { delete(m, "exp") },
		"not valid yet":         func(m map[string]any) { m["nbf"] = now() + 120 },
		"nobody":                func(m map[string]any) { delete(m, "sub") },
		"two audiences, no azp": func(m map[string]any) { m["aud"] = []string{"console", "other"} },
	} {
		c.provider.Change(func(p *oidctest.Provider) { p.Claims = change })
		c.clock.Advance(time.Minute)
		b := c.browser()
		c.refusesCallback(name, b, c.come(b), 403)
	}
	c.provider.Change(func(p *oidctest.Provider) { p.Claims = nil })
	c.come(c.browser()).is(t, "the answer", http.StatusSeeOther)
}

// A token endpoint that answers as none should.
func TestHostileTokenEndpoint(t *testing.T) {
	t.Parallel()
	c := openCore(t, coreWith{oidc: true})
	var elsewhere atomic.Int64
	away := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	defer away.Close()
	answers := func(status int, media, body string, headers ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", media)
			for n := 0; n+1 < len(headers); n += 2 {
				w.Header().Set(headers[n], headers[n+1])
			}
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
		}
	}
	for name, answer := range map[string]http.HandlerFunc{
		"redirect":        answers(307, "text/plain", "", "Location", away.URL+"/token"),
		"see other":       answers(303, "text/plain", "", "Location", away.URL+"/token"),
		"nothing":         answers(200, "application/json", ""),
		"no JSON":         answers(200, "application/json", "<html>SECRET"),
		"HTML":            answers(200, "text/html", "<html>SECRET"),
		"no ID token":     answers(200, "application/json", `{"access_token":"SECRET","token_type":"Bearer"}`),
		"a number":        answers(200, "application/json", `{"access_token":"SECRET","token_type":"Bearer","id_token":1}`),
		"no access token": answers(200, "application/json", `{"id_token":"SECRET"}`),
		"error":           answers(400, "application/json", `{"error":"SECRET CODE","error_description":"SECRET"}`),
		"500":             answers(500, "text/plain", "SECRET"),
		"huge":            answers(200, "application/json", `{"access_token":"SECRET","token_type":"Bearer","id_token":"`+strings.Repeat("A", 2<<20)+`"}`),
		"cut off": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			_, _ = w.Write([]byte(`{"access_token":"SECRET"`))
		},
		"closed": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		c.provider.Change(func(p *oidctest.Provider) { p.Token = answer })
		c.clock.Advance(time.Minute)
		b := c.browser()
		got := c.come(b)
		c.refusesCallback(name, b, got, 502)
		if strings.Contains(got.Body, "SECRET") {
			t.Errorf("%s: the page quotes it: %s", name, got.Body)
		}
	}
	// Each of these is no token of the provider's.
	for name, text := range map[string]string{
		"rubbish": "SECRET", "unsigned": "eyJhbGciOiJub25lIn0.e30.", "large": strings.Repeat("A", 100<<10), "an API key": c.key["mia"],
	} {
		c.clock.Advance(time.Minute)
		c.provider.Change(func(p *oidctest.Provider) {
			p.Token = answers(200, "application/json", fmt.Sprintf(`{"access_token":"SECRET","token_type":"Bearer","id_token":%q}`, text))
		})
		b := c.browser()
		c.refusesCallback(name, b, c.come(b), 403)
	}
	if elsewhere.Load() > 0 {
		t.Error("the code went elsewhere")
	}
	if strings.Contains(c.log.String(), "SECRET") {
		t.Errorf("the log quotes it: %s", c.log)
	}
}

// A provider that says of itself what cannot be is not gone to.
func TestHostileDiscovery(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(map[string]any){
		"another issuer":        func(m map[string]any) { m["issuer"] = "https://attacker.example" },
		"plain HTTP elsewhere":  func(m map[string]any) { m["token_endpoint"] = "http://attacker.example/token" },
		"no token endpoint":     func(m map[string]any) { delete(m, "token_endpoint") },
		"script":                func(m map[string]any) { m["authorization_endpoint"] = "javascript:alert(1)" },
		"relative":              func(m map[string]any) { m["authorization_endpoint"] = "/authorize" },
		"a user":                func(m map[string]any) { m["authorization_endpoint"] = "https://a:b@attacker.example" },
		"only keys":             func(m map[string]any) { m["token_endpoint_auth_methods_supported"] = []string{"private_key_jwt"} },
		"methods that are none": func(m map[string]any) { m["token_endpoint_auth_methods_supported"] = 7 },
		"huge":                  func(m map[string]any) { m["x"] = strings.Repeat("x", 2<<20) },
	} {
		c := openCore(t, coreWith{oidc: true})
		c.provider.Change(func(p *oidctest.Provider) { p.Metadata = change })
		got := c.browser().get("/login/oidc")
		if got.Status != http.StatusBadGateway || got.Header.Get("Set-Cookie") != "" || strings.Contains(got.Body, "attacker") {
			t.Errorf("%s: got %d %s", name, got.Status, got.Body)
		}
		// It is not asked again and again.
		c.browser().get("/login/oidc")
		if asked := c.provider.Asked("/.well-known/openid-configuration"); asked > 1 {
			t.Errorf("%s: it is asked %d times", name, asked)
		}
		c.provider.Change(func(p *oidctest.Provider) { p.Metadata = nil })
		c.clock.Advance(5 * time.Second)
		c.come(c.browser()).is(t, fmt.Sprintf("%s, and then as it should be", name), http.StatusSeeOther)
	}
}

// A client with a secret shows it as the provider takes it. The file is read each time.
func TestClientSecret(t *testing.T) {
	t.Parallel()
	for _, methods := range [][]string{nil, {"client_secret_basic"}, {"client_secret_post"}} {
		c := openCore(t, coreWith{oidc: true})
		file := filepath.Join(t.TempDir(), "secret")
		config := *c.config
		config.ClientSecretFile = file
		c.configure(config)
		c.provider.Change(func(p *oidctest.Provider) { p.Secret = "s3cr&t +" })
		c.provider.Change(func(p *oidctest.Provider) {
			p.Metadata = func(m map[string]any) {
				if methods != nil {
					m["token_endpoint_auth_methods_supported"] = methods
				}
				m["scopes_supported"] = []string{"openid", "groups"}
			}
		})
		c.browser().get("/login/oidc").is(t, "without the file", http.StatusBadGateway)
		coreMust(t, os.WriteFile(file, []byte("another\n"), 0o600))
		b := c.browser()
		c.refusesCallback("another secret", b, c.come(b), 502)
		coreMust(t, os.WriteFile(file, []byte("s3cr&t +\n"), 0o600))
		c.come(b).is(t, fmt.Sprint(methods), http.StatusSeeOther)
		if strings.Contains(c.log.String(), "s3cr") {
			t.Errorf("the log has the secret: %s", c.log)
		}
	}
}

// Without a provider there is no way to one.
func TestNoProvider(t *testing.T) {
	t.Parallel()
	c := openCore(t, coreWith{})
	for _, path := range []string{"/login/oidc", "/login/callback?state=a&code=b"} {
		c.browser().get(path).is(t, path, http.StatusNotFound)
	}
	if got := c.browser().get("/login"); got.Status != http.StatusOK || strings.Contains(got.Body, "oidc") {
		t.Errorf("got %d %s", got.Status, got.Body)
	}
}

// What the configuration takes away counts at the next request.
func TestGrantTakenAway(t *testing.T) {
	t.Parallel()
	c := openCore(t, coreWith{oidc: true})
	id := c.waits("deploy")
	b := c.browser()
	if got := c.come(b); got.Status != http.StatusSeeOther {
		t.Fatalf("got %d", got.Status)
	}
	to := "/approvals/" + id + "/decision"
	fields := b.fields("/approvals/"+id, to)
	config := *c.config
	config.Grants = []auth.ClaimGrant{{Claim: "groups", Value: "others", Permissions: []auth.Permission{auth.Approve}, Tenants: []string{"default"}}}
	c.configure(config)
	if got := b.send(to, "decision", "approve", "reason", "r", "token", fields["token"], "version", fields["version"], "shown", fields["shown"]); got.Status < 400 {
		t.Errorf("got %d", got.Status)
	}
	c.undecided(id)
	config.Issuer = oidctest.Start(t, c.clock.Now).URL
	c.configure(config)
	b.send(to, "decision", "approve", "reason", "r", "token", fields["token"], "version", fields["version"], "shown", fields["shown"]).is(t, "the answer", http.StatusUnauthorized)
	c.undecided(id)
	if b.isIn() {
		t.Error("it is in")
	}
}
