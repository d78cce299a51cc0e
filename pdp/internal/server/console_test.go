package server_test

import (
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"policy-service/pdp"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/pdptest"
)

// withConsole turns the console on.
func withConsole(c server.ConsoleConfig) pdptest.Option {
	return func(config *server.Config) { config.Console = &c }
}

// consoleBrowser is a browser that shows where it is sent, and goes there only if it is told to.
func consoleBrowser(transport http.RoundTripper) *http.Client {
	if transport == nil {
		transport = ownClient().Transport
	}
	return &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

type consoleAnswer struct {
	status      int
	header      http.Header
	body, where string
}

// is checks the status.
func (a consoleAnswer) is(t *testing.T, name string, status int) {
	t.Helper()
	if a.status != status {
		t.Errorf("%s: got %d to %q, want %d: %s", name, a.status, a.where, status, a.body)
	}
}

func consoleGet(t testing.TB, by *http.Client, url string, header ...string) consoleAnswer {
	t.Helper()
	return consoleDo(t, by, http.MethodGet, url, nil, header...)
}

func consoleDo(t testing.TB, by *http.Client, method, to string, body io.Reader, header ...string) consoleAnswer {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, to, body)
	must(t, err)
	for n := 0; n+1 < len(header); n += 2 {
		r.Header.Set(header[n], header[n+1])
	}
	got, err := by.Do(r)
	must(t, err)
	defer func() { _ = got.Body.Close() }()
	text, err := io.ReadAll(got.Body)
	must(t, err)
	return consoleAnswer{got.StatusCode, got.Header, string(text), got.Header.Get("Location")}
}

// consoleIn is a browser in which somebody has logged in with their API key.
func (c *counter) consoleIn(who string) *http.Client {
	c.t.Helper()
	jar, err := cookiejar.New(nil)
	must(c.t, err)
	browser := consoleBrowser(nil)
	browser.Jar = jar
	got := consolePost(c.t, browser, c.ConsoleURL()+"/login", url.Values{"key": {strings.TrimPrefix(c.key[who], "Bearer ")}})
	if got.status != http.StatusSeeOther || !strings.HasSuffix(got.where, "/console/approvals") {
		c.t.Fatalf("%s cannot log in: got %d %s", who, got.status, got.body)
	}
	return browser
}

// consolePost sends a form, as a page of the console does.
func consolePost(t testing.TB, by *http.Client, to string, form url.Values, header ...string) consoleAnswer {
	t.Helper()
	header = append([]string{"Content-Type", "application/x-www-form-urlencoded", "Sec-Fetch-Site", "same-origin"}, header...)
	return consoleDo(t, by, http.MethodPost, to, strings.NewReader(form.Encode()), header...)
}

// isConsole checks that the console is at an address, and that its links begin with a path.
func isConsole(t testing.TB, by *http.Client, url, path string) {
	t.Helper()
	got := consoleGet(t, by, url+"/")
	if got.status != http.StatusSeeOther || got.where != path+"/approvals" {
		t.Errorf("%s/: got %d to %q, want 303 to %s/approvals", url, got.status, got.where, path)
	}
	if csp := got.header["Content-Security-Policy"]; len(csp) != 1 || !strings.Contains(csp[0], "form-action 'self'") {
		t.Errorf("%s/ has the policy %q", url, csp)
	}
}

// isNoConsole checks that nothing at an address is the console, or differs from what is nowhere.
func isNoConsole(t testing.TB, by *http.Client, base string) {
	t.Helper()
	nowhere := consoleGet(t, by, base+"/nowhere")
	for _, path := range []string{"/console", "/console/", "/console/approvals", "/console/login", "/console/style.css"} {
		if got := consoleGet(t, by, base+path); got.status != http.StatusNotFound || got.body != nowhere.body {
			t.Errorf("%s%s: got %d %s", base, path, got.status, got.body)
		}
	}
}

func TestConsoleIsOffUnlessConfigured(t *testing.T) {
	t.Parallel()
	c := openCounter(t)
	isNoConsole(t, consoleBrowser(nil), c.URL)
	if url := c.ConsoleURL(); url != "" {
		t.Errorf("it says that a console is at %s", url)
	}
}

func TestConsoleOnTheListener(t *testing.T) {
	t.Parallel()
	c := openCounter(t, withConsole(server.ConsoleConfig{}))
	isConsole(t, consoleBrowser(nil), c.URL+"/console", "/console")
	if got := consoleGet(t, consoleBrowser(nil), c.URL+"/console"); got.where != "/console/approvals" {
		t.Errorf("got %d to %q", got.status, got.where)
	}
	if got := c.ConsoleURL(); got != c.URL+"/console" {
		t.Errorf("it says that the console is at %s", got)
	}
}

func TestConsoleOnItsOwnListener(t *testing.T) {
	t.Parallel()
	c := openCounter(t, withConsole(server.ConsoleConfig{Listen: "127.0.0.1:0"}))
	isConsole(t, consoleBrowser(nil), "http://"+c.ConsoleAddr()+"/console", "/console")
	if got := c.ConsoleURL(); got != "http://"+c.ConsoleAddr()+"/console" {
		t.Errorf("it says that the console is at %s", got)
	}
	isNoConsole(t, consoleBrowser(nil), c.URL)
	for _, path := range []string{"/livez", "/v1/approvals", "/metrics"} {
		consoleGet(t, consoleBrowser(nil), "http://"+c.ConsoleAddr()+path).is(t, path+" is at the console's address", http.StatusNotFound)
	}
}

// Behind a proxy the console is below the path of its public_url, whether the proxy takes off what is its own or not.
func TestConsoleBehindProxy(t *testing.T) {
	t.Parallel()
	for name, strips := range map[string]bool{"strips": true, "leaves": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := openCounter(t, withConsole(server.ConsoleConfig{PublicURL: "https://pdp.example.com/pdp/console/"}))
			to, err := url.Parse(c.URL)
			must(t, err)
			proxy := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
				r.SetURL(to)
				r.SetXForwarded()
				if strips {
					r.Out.URL.Path = strings.TrimPrefix(r.In.URL.Path, "/pdp")
				}
			}})
			defer proxy.Close()
			isConsole(t, consoleBrowser(nil), proxy.URL+"/pdp/console", "/pdp/console")
			if got := c.ConsoleURL(); got != "https://pdp.example.com/pdp/console" {
				t.Errorf("it says that the console is at %s", got)
			}
		})
	}
}

// A console that could not work, or that others could listen to, is refused at the start.
func TestConsoleThatCannotBe(t *testing.T) {
	t.Parallel()
	with := server.TLSConfig{TLSFiles: server.TLSFiles{CertFile: "cert.pem", KeyFile: "key.pem"}}
	for want, config := range map[string]server.Config{
		"there are none without a data directory":                            {Console: &server.ConsoleConfig{}},
		"this program does so":                                               {Data: "d", Console: &server.ConsoleConfig{}, Program: server.Program{Authenticator: inProcess{}}},
		"needs a server that listens":                                        {Data: "d", Console: &server.ConsoleConfig{}, Program: server.Program{InProcess: true}},
		`refusing to listen on ":8182": without TLS only loopback`:           {Data: "d", Console: &server.ConsoleConfig{Listen: ":8182"}},
		"console.listen is \"here\"":                                         {Data: "d", Console: &server.ConsoleConfig{Listen: "here"}},
		"console.public_url is plain HTTP":                                   {Data: "d", Console: &server.ConsoleConfig{PublicURL: "http://pdp.example/console"}},
		"it is made from public_url, so write console.public_url":            {Data: "d", PublicURL: "http://pdp.example", Console: &server.ConsoleConfig{}},
		"console.public_url is missing, and links":                           {Data: "d", Listen: ":8443", TLS: with, Console: &server.ConsoleConfig{}},
		"such as https://pdp.example.com/console":                            {Data: "d", PublicURL: "https://pdp.example", TLS: with, Console: &server.ConsoleConfig{Listen: ":8182"}},
		"console.oidc: client_id is missing":                                 {Data: "d", Console: &server.ConsoleConfig{OIDC: &auth.OIDC{Issuer: "https://i.example"}}},
		"console.session.max is more than 24h":                               {Data: "d", Console: &server.ConsoleConfig{Session: server.SessionConfig{Max: 25 * time.Hour}}},
		"refusing to serve https://pdp.example/console: without credentials": {Data: t.TempDir(), Listen: "127.0.0.1:0", Console: &server.ConsoleConfig{PublicURL: "https://pdp.example/console"}, Program: server.Program{Source: pdp.Dir("../../../policies/starter")}},
	} {
		s, err := server.New(config)
		if err == nil && !config.Program.Source.IsNothing() {
			err = s.Start(t.Context())
		}
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "; ") {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// A stranger behind the same proxy has tries of their own, whatever addresses they name.
func TestTriesBehindATrustedProxyAreOfTheClient(t *testing.T) {
	t.Parallel()
	for trusted, other := range map[string]int{"": http.StatusTooManyRequests, "127.0.0.0/8": http.StatusUnauthorized} {
		config := server.ConsoleConfig{}
		if trusted != "" {
			config.TrustedProxies = []string{trusted}
		}
		c := openCounter(t, withConsole(config))
		try := func(from string, want int) {
			t.Helper()
			got := consolePost(t, consoleBrowser(nil), c.ConsoleURL()+"/login", url.Values{"key": {"psk_wrong"}}, "X-Forwarded-For", from)
			if got.status != want {
				t.Errorf("trusted %q, from %s: %d, want %d", trusted, from, got.status, want)
			}
		}
		for range 5 {
			try("192.0.2.1", http.StatusUnauthorized)
		}
		try("192.0.2.1", http.StatusTooManyRequests)
		try("192.0.2.2, 192.0.2.1", http.StatusTooManyRequests)
		try("192.0.2.1, 192.0.2.2", other)
	}
}

// A configuration that shows other pages on the console's host is warned of.
func TestConsoleBesideOtherPages(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		config server.Config
		beside bool
	}{
		"off":                     {server.Config{PublicURL: "https://tools.example.com/pdp"}, false},
		"a host of its own":       {server.Config{Console: &server.ConsoleConfig{PublicURL: "https://approve.example.com/console"}}, false},
		"of the service alone":    {server.Config{PublicURL: "https://pdp.example.com/", Console: &server.ConsoleConfig{}}, false},
		"on loopback":             {server.Config{Console: &server.ConsoleConfig{}}, false},
		"a path":                  {server.Config{Console: &server.ConsoleConfig{PublicURL: "https://tools.example.com/pdp/console/"}}, true},
		"the path of the service": {server.Config{PublicURL: "https://tools.example.com/pdp", Console: &server.ConsoleConfig{}}, true},
		"another place than that": {server.Config{PublicURL: "https://tools.example.com/pdp", Console: &server.ConsoleConfig{Listen: "127.0.0.1:0"}}, false},
		"a path of the same name": {server.Config{Console: &server.ConsoleConfig{PublicURL: "https://tools.example.com/console/console"}}, true},
	} {
		if err := test.config.ConsoleBeside(); (err != nil) != test.beside {
			t.Errorf("%s: %v", name, err)
		}
	}
}
