package console_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"policy-service/pdp"
	"policy-service/pdp/internal/console"
	"policy-service/pdp/internal/console/oidctest"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/auth/keys"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/clock"
)

// core is a server and its console, which browsers reach over TLS at /pdp/console, behind what takes /pdp away.
type core struct {
	t        *testing.T
	URL      string // of the console, for browsers
	clock    *clock.Clock
	keys     *keys.Keys
	key      map[string]string // by name
	provider *oidctest.Provider
	api      http.RoundTripper
	log      *coreLog

	mu     sync.Mutex // guards what follows
	config *auth.OIDC
	known  *auth.Authenticator
}

// coreLog is what was logged. It may be read and written side by side.
type coreLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *coreLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *coreLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

const coreBundle = `
-- a.cedar --
@id("ask") @obligation("ask") permit (principal, action == Action::"do", resource);
@id("mia") permit (principal == user::"mia", action == Action::"approval.decide", resource is Approval);
-- obligations.yaml --
ask: {type: approval_required, properties: {template: owner, message: "do it", delegable: true}}
`

func coreMust(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Authenticate asks whom the console's configuration in force knows.
func (c *core) Authenticate(r *http.Request) (auth.Caller, error) { return c.inForce().Authenticate(r) }

// InForce is for votes that were cast.
func (c *core) InForce(tenant, caller string) bool { return c.inForce().InForce(tenant, caller) }

func (c *core) inForce() *auth.Authenticator {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known
}

// coreWith changes how a console is reached, and by whom.
type coreWith struct {
	options func(*console.Options)
	oidc    bool
	mtls    *pdptest.Authority
	api     func(http.RoundTripper) http.RoundTripper // what the console asks in place of the API
	within  func(http.Handler) http.Handler           // what is around the console
}

func openCore(t *testing.T, with coreWith) *core {
	t.Helper()
	c := &core{t: t, clock: clock.New(), key: map[string]string{}, log: &coreLog{}}
	data := t.TempDir()
	var err error
	c.keys, err = keys.Open(data)
	coreMust(t, err)
	c.addKey("pep", auth.Principal{}, auth.Decide)
	for _, who := range []string{"mia", "eve"} {
		c.addKey(who, auth.Principal{Type: "user", ID: who}, auth.Approve)
	}
	c.known = &auth.Authenticator{Keys: c.keys}
	if with.mtls != nil {
		c.known.MTLS, err = auth.NewMTLS([]auth.MTLSRule{{SAN: "ops.example.com", Grant: auth.Grant{Tenants: []string{"default"}, Permissions: []auth.Permission{auth.Explain}}}}, c.clock.Now)
		coreMust(t, err)
	}
	if with.oidc {
		c.provider = oidctest.Start(t, c.clock.Now)
		c.provider.Change(func(p *oidctest.Provider) {
			p.Person = map[string]any{"sub": "0-mia", "name": "mia", "groups": []string{"approvers"}}
		})
		c.configure(auth.OIDC{Issuer: c.provider.URL, ClientID: oidctest.Client, Principal: &auth.PrincipalClaim{Type: "user", Claim: "name"},
			Grants: []auth.ClaimGrant{{Claim: "groups", Value: "approvers", Permissions: []auth.Permission{auth.Approve}, Tenants: []string{"default"}}}})
	}
	c.api = coreServer(t, server.Config{Data: data, Program: server.Program{
		Source: pdptest.Txtar(coreBundle), InProcess: true, Authenticator: c, PDP: pdp.Options{Now: c.clock.Now},
	}})
	c.serve(with)
	return c
}

func coreServer(t *testing.T, config server.Config) http.RoundTripper {
	t.Helper()
	s, err := server.New(config)
	coreMust(t, err)
	coreMust(t, s.Start(t.Context()))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := s.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return s.Transport()
}

// serve has browsers reach the console.
func (c *core) serve(with coreWith) {
	c.t.Helper()
	web := httptest.NewUnstartedServer(nil)
	c.URL = "https://" + web.Listener.Addr().String() + "/pdp/console"
	o := console.Options{
		Logins:    func() console.Logins { return c.inForce() },
		OIDC:      func() *auth.OIDC { c.mu.Lock(); defer c.mu.Unlock(); return c.config },
		PublicURL: c.URL, Secure: true, MaxSession: 8 * time.Hour, IdleSession: 30 * time.Minute,
		Now: c.clock.Now, Log: slog.New(slog.NewTextHandler(c.log, nil)),
	}
	if with.options != nil {
		with.options(&o)
	}
	api := c.api
	if with.api != nil {
		api = with.api(api)
	}
	pages, err := console.New(api, o)
	coreMust(c.t, err)
	web.Config.Handler = http.StripPrefix("/pdp", pages)
	if with.within != nil {
		web.Config.Handler = with.within(web.Config.Handler)
	}
	if with.mtls != nil {
		web.TLS = &tls.Config{ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: with.mtls.Pool}
	}
	if o.Secure {
		web.StartTLS()
	} else {
		c.URL = "http" + strings.TrimPrefix(c.URL, "https")
		web.Start()
	}
	c.t.Cleanup(web.Close)
}

// configure has the console take another provider.
func (c *core) configure(config auth.OIDC) {
	c.t.Helper()
	before := c.inForce()
	people, err := auth.NewConsole(config, before.Console, auth.JWTOptions{Now: c.clock.Now})
	coreMust(c.t, err)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.config = &config
	c.known = &auth.Authenticator{Keys: before.Keys, MTLS: before.MTLS, Console: people}
}

func (c *core) addKey(name string, principal auth.Principal, permission auth.Permission) {
	c.t.Helper()
	secret, err := c.keys.Add(keys.Spec{Name: name, Principal: principal, Grant: auth.Grant{Tenants: []string{"*"}, Permissions: []auth.Permission{permission}}})
	coreMust(c.t, err)
	c.key[name] = secret
}

// ask asks the API with a key.
func (c *core) ask(who, method, path, body string) string {
	c.t.Helper()
	r, err := http.NewRequestWithContext(c.t.Context(), method, "https://pdp.invalid"+path, strings.NewReader(body))
	coreMust(c.t, err)
	r.Header.Set("Authorization", "Bearer "+c.key[who])
	r.Header.Set("Content-Type", "application/json")
	got, err := c.api.RoundTrip(r)
	coreMust(c.t, err)
	text, err := io.ReadAll(got.Body)
	coreMust(c.t, err)
	if got.StatusCode != http.StatusOK {
		c.t.Fatalf("%s %s as %s: %d %s", method, path, who, got.StatusCode, text)
	}
	return string(text)
}

var coreID = regexp.MustCompile(`"approval":\{"id":"([^"]+)"`)

// waits files an approval request, and returns its id.
func (c *core) waits(what string) string {
	c.t.Helper()
	got := c.ask("pep", http.MethodPost, "/v1/authorize", fmt.Sprintf(`{"tenant_id":"default","actor":{"actor_id":"bot","actor_type":"agent"},"action":"do","resource":{"type":"tool","id":%q}}`, what))
	found := coreID.FindStringSubmatch(got)
	if found == nil {
		c.t.Fatalf("got %s", got)
	}
	return found[1]
}

// coreBrowser has cookies, and goes only where it is told to.
type coreBrowser struct {
	c      *core
	client *http.Client
	jar    *cookiejar.Jar
}

func (c *core) browser(certificates ...tls.Certificate) *coreBrowser {
	c.t.Helper()
	jar, err := cookiejar.New(nil)
	coreMust(c.t, err)
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: certificates}} //nolint:gosec // a test's own server
	c.t.Cleanup(transport.CloseIdleConnections)
	return &coreBrowser{c: c, jar: jar, client: &http.Client{Jar: jar, Transport: transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

type coreAnswer struct {
	Status int
	Header http.Header
	Body   string
	To     string // where it leads
}

// is checks the status.
func (a coreAnswer) is(t *testing.T, name string, status int) {
	t.Helper()
	if a.Status != status {
		t.Errorf("%s: got %d to %q, want %d: %s", name, a.Status, a.To, status, a.Body)
	}
}

// leads checks the status, and where the answer leads.
func (a coreAnswer) leads(t *testing.T, name string, status int, to string) {
	t.Helper()
	if a.is(t, name, status); a.To != to {
		t.Errorf("%s: it leads to %q, want %q", name, a.To, to)
	}
}

// do sends a request to a path of the console, or to a URL. Headers are given as name, value, ….
func (b *coreBrowser) do(method, to, body string, headers ...string) coreAnswer {
	b.c.t.Helper()
	if !strings.HasPrefix(to, "http") {
		to = b.c.URL + to
	}
	r, err := http.NewRequestWithContext(b.c.t.Context(), method, to, strings.NewReader(body))
	coreMust(b.c.t, err)
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	got, err := b.client.Do(r)
	coreMust(b.c.t, err)
	defer func() { _ = got.Body.Close() }()
	text, err := io.ReadAll(got.Body)
	coreMust(b.c.t, err)
	return coreAnswer{got.StatusCode, got.Header, string(text), got.Header.Get("Location")}
}

func (b *coreBrowser) get(to string, headers ...string) coreAnswer {
	b.c.t.Helper()
	return b.do(http.MethodGet, to, "", headers...)
}

// send sends a form as a page of the console does.
func (b *coreBrowser) send(to string, fields ...string) coreAnswer {
	b.c.t.Helper()
	return b.do(http.MethodPost, to, coreForm(fields...), "Sec-Fetch-Site", "same-origin", "Content-Type", "application/x-www-form-urlencoded")
}

func coreForm(fields ...string) string {
	form := url.Values{}
	for i := 0; i+1 < len(fields); i += 2 {
		form.Add(fields[i], fields[i+1])
	}
	return form.Encode()
}

// logIn logs in with a key.
func (b *coreBrowser) logIn(who string) coreAnswer {
	b.c.t.Helper()
	got := b.send("/login", "key", b.c.key[who])
	if got.Status != http.StatusSeeOther || got.To != "/pdp/console/approvals" {
		b.c.t.Fatalf("%s logs in: %d to %q: %s", who, got.Status, got.To, got.Body)
	}
	return got
}

// isIn reports if the person is logged in.
func (b *coreBrowser) isIn() bool {
	b.c.t.Helper()
	switch got := b.get("/approvals"); {
	case got.Status == http.StatusOK:
		return true
	case got.Status == http.StatusSeeOther && strings.HasPrefix(got.To, "/pdp/console/login"):
		return false
	default:
		b.c.t.Fatalf("got %d to %q: %s", got.Status, got.To, got.Body)
		return false
	}
}

// cookie is the value of a cookie that the browser has, "" if it has none.
func (b *coreBrowser) cookie(name string) string {
	at, err := url.Parse(b.c.URL)
	coreMust(b.c.t, err)
	for _, cookie := range b.jar.Cookies(at) {
		if cookie.Name == name {
			return cookie.Value
		}
	}
	return ""
}

var coreFields = regexp.MustCompile(`<input type="hidden" name="(token|version|shown)" value="([^"]*)"`)

// fields are the hidden fields of the form of a page that goes to a path.
func (b *coreBrowser) fields(page, action string) map[string]string {
	b.c.t.Helper()
	got := b.get(page)
	_, form, found := strings.Cut(got.Body, `action="/pdp/console`+action+`"`)
	if !found {
		b.c.t.Fatalf("%s has no form for %s: %d %s", page, action, got.Status, got.Body)
	}
	form, _, _ = strings.Cut(form, "</form>")
	fields := map[string]string{}
	for _, field := range coreFields.FindAllStringSubmatch(form, -1) {
		fields[field[1]] = field[2]
	}
	return fields
}

// toCallback goes to the provider and back, and returns the address to which the provider sends the browser. The query
// of the way there is given as name, value, ….
func (c *core) toCallback(b *coreBrowser, query ...string) string {
	c.t.Helper()
	got := b.get("/login/oidc?" + coreForm(query...))
	if got.Status != http.StatusSeeOther || !strings.HasPrefix(got.To, c.provider.URL+"/authorize?") {
		c.t.Fatalf("got %d to %q: %s", got.Status, got.To, got.Body)
	}
	back := b.get(got.To)
	if back.Status != http.StatusFound || !strings.HasPrefix(back.To, c.URL+"/login/callback?") {
		c.t.Fatalf("the provider answers %d to %q: %s", back.Status, back.To, back.Body)
	}
	return back.To
}
