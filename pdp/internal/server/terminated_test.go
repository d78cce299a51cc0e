package server_test

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/auth/keys"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/written"
)

// seen has what the last request was when it came to the authenticator, which lets everybody in.
type seen struct {
	mu     sync.Mutex
	from   string
	header http.Header
}

func (s *seen) Authenticate(r *http.Request) (auth.Caller, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.from, s.header = r.RemoteAddr, r.Header.Clone()
	return auth.Caller{Name: "key:pep", AllTenants: true, Permissions: []auth.Permission{auth.Decide}}, nil
}

func (s *seen) last() (from string, header http.Header) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.from, s.header
}

// terminated has a proxy terminate TLS before a server that listens on every address of this machine.
func terminated(proxies ...string) pdptest.Option {
	return func(c *server.Config) { c.Listen, c.TLS.Terminated, c.TLS.Proxies = "0.0.0.0:0", true, proxies }
}

// Without each of what it needs, plain HTTP is not spoken to other machines.
func TestTerminatedNeeds(t *testing.T) {
	t.Parallel()
	keyed, a := t.TempDir(), pdptest.NewAuthority(t)
	addKey(t, keyed, "pep", auth.Grant{Tenants: []string{"*"}, Permissions: []auth.Permission{auth.Decide}})
	also := func(change func(*server.Config), proxies ...string) pdptest.Option {
		return both(both(withData(keyed), terminated(proxies...)), change)
	}
	as := func(*server.Config) {}
	for want, option := range map[string]pdptest.Option{
		"without TLS only loopback is safe":                               both(withData(keyed), func(c *server.Config) { c.Listen = "0.0.0.0:0" }),
		"refusing to serve a proxy that terminates TLS: without":          both(withData(t.TempDir()), terminated("10.0.0.5")),
		"tls.terminated needs tls.proxies":                                also(as),
		"tls.proxies terminate TLS, and tls.terminated does not":          both(withData(keyed), func(c *server.Config) { c.TLS.Proxies = []string{"10.0.0.5"} }),
		`tls.proxies has "0.0.0.0/0", which is no address and no range`:   also(as, "0.0.0.0/0"),
		`tls.proxies has "::/0", which is no address and no range`:        also(as, "::/0"),
		`tls.proxies has "10.0.0.5/24", which is no address and no range`: also(as, "10.0.0.5/24"),
		"tls.cert_file that the service does":                             also(withTLS(a), "10.0.0.5"),
		"a header about them is never believed": also(func(c *server.Config) {
			c.Auth.MTLS = []auth.MTLSRule{{SAN: "pep.example", Grant: auth.Grant{Tenants: []string{"*"}, Permissions: []auth.Permission{auth.Decide}}}}
		}, "10.0.0.5"),
		"a client CA is of use with TLS only": also(func(c *server.Config) { c.TLS.ClientCAFile = a.File }, "10.0.0.5"),
		"console.trusted_proxies say what tls.proxies say": also(func(c *server.Config) {
			c.Console = &server.ConsoleConfig{PublicURL: "https://pdp.example.com/console", TrustedProxies: []string{"10.0.0.5"}}
		}, "10.0.0.5"),
		"console.public_url is missing": also(func(c *server.Config) { c.Listen, c.Console = "127.0.0.1:0", &server.ConsoleConfig{} }, "10.0.0.5"),
		"tls.terminated needs":          both(both(withData(keyed), terminated()), func(c *server.Config) { c.Listen = "127.0.0.1:0" }),
	} {
		refusedAtStart(t, want, option)
	}
	// It is never the proxy's word that counts for how the service is reached.
	s := pdptest.Start(t, bundle(t), withData(keyed), terminated("127.0.0.1"), func(c *server.Config) { c.Listen = "127.0.0.1:0" })
	replied(t, s.Get("/.well-known/authzen-configuration", "X-Forwarded-Host", "pdp.example.com", "X-Forwarded-Proto", "https"), 404, "public_url")
}

// elsewhere is an address of this machine that is not on loopback. A connection to it comes from it.
func elsewhere(t *testing.T) string {
	t.Helper()
	all, err := net.InterfaceAddrs()
	must(t, err)
	for _, one := range all {
		if of, err := netip.ParsePrefix(one.String()); err == nil && of.Addr().Is4() && !of.Addr().IsLoopback() {
			return of.Addr().String()
		}
	}
	t.Skip("this machine has no address but loopback, so no test can come from another one; run it where a network is, as the gate does")
	return ""
}

// A machine that is none of the proxies gets no byte, and not one of its bytes is read. This machine, and the proxies, are
// answered.
func TestTerminatedRefusesOutsiders(t *testing.T) {
	t.Parallel()
	here := elsewhere(t)
	var told written.Text
	ask := func(s *pdptest.Server, host string) (int, error) {
		_, port, err := net.SplitHostPort(s.Addr())
		must(t, err)
		transport := &http.Transport{}
		defer transport.CloseIdleConnections()
		client := http.Client{Transport: transport, Timeout: patience}
		answer, err := client.Post("http://"+net.JoinHostPort(host, port)+evaluationPath, "application/json", strings.NewReader(readQuestion))
		if err != nil {
			return 0, err
		}
		return answer.StatusCode, answer.Body.Close()
	}
	caller := &seen{}
	s := pdptest.Start(t, bundle(t), terminated("203.0.113.0/24"), logTo(&told), func(c *server.Config) { c.Program.Authenticator = caller })
	for range 3 {
		if status, err := ask(s, here); err == nil {
			t.Errorf("a machine that is no proxy got %d", status)
		}
	}
	if from, _ := caller.last(); from != "" {
		t.Errorf("a request of %s was read", from)
	}
	_, port, err := net.SplitHostPort(s.Addr())
	must(t, err)
	conn, err := net.DialTimeout("tcp", net.JoinHostPort(here, port), patience)
	must(t, err)
	must(t, conn.SetDeadline(time.Now().Add(patience)))
	if got, err := io.ReadAll(conn); len(got) > 0 || errors.Is(err, net.ErrClosed) {
		t.Errorf("it got %q, %v", got, err)
	}
	must(t, conn.Close())
	if status, err := ask(s, "127.0.0.1"); err != nil || status != 200 {
		t.Errorf("this machine: %d, %v", status, err)
	}
	if n := strings.Count(told.String(), "closed unread"); n != 1 {
		t.Errorf("it was logged %d times, want once a minute", n)
	}
	s = pdptest.Start(t, bundle(t), terminated(here+"/32"), func(c *server.Config) { c.Program.Authenticator = caller })
	if status, err := ask(s, here); err != nil || status != 200 {
		t.Errorf("a proxy: %d, %v", status, err)
	}
}

// What proxies say of a request counts as its address, if they are ours, and nothing behind the listener reads a header
// about that.
func TestTerminatedDropsForwardedHeaders(t *testing.T) {
	t.Parallel()
	said := []string{"X-Forwarded-For", "192.0.2.66, 198.51.100.7, 127.0.0.9", "Forwarded", "for=192.0.2.66", "X-Forwarded-Proto", "https", "X-Forwarded-Host", "evil.example",
		"X-Forwarded-Client-Cert", "By=x", "X-Real-IP", "192.0.2.66", "Via", "1.1 proxy"}
	start := func(options ...pdptest.Option) (*pdptest.Server, *seen) {
		caller := &seen{}
		return pdptest.Start(t, bundle(t), append(options, func(c *server.Config) { c.Program.Authenticator = caller })...), caller
	}
	check := func(s *pdptest.Server, caller *seen, want string) {
		t.Helper()
		replied(t, s.Post(evaluationPath, readQuestion, said...), 200)
		from, header := caller.last()
		if !strings.HasPrefix(from, want) {
			t.Errorf("it comes from %q, want %q", from, want)
		}
		for n := 0; n < len(said); n += 2 {
			if values, there := header[http.CanonicalHeaderKey(said[n])]; there {
				t.Errorf("%s: %q is left", said[n], values)
			}
		}
		if !slices.Equal(header["Content-Type"], []string{"application/json"}) {
			t.Errorf("a header of the client is gone: %v", header)
		}
	}
	onLoopback := func(c *server.Config) { c.Listen = "127.0.0.1:0" }
	s, caller := start(terminated("127.0.0.0/8"), onLoopback)
	check(s, caller, "198.51.100.7:0")
	s, caller = start(terminated("203.0.113.9"), onLoopback) // this machine is answered, and not believed
	check(s, caller, "127.0.0.1:")

	caller = &seen{}
	s, _ = startSocket(t, "0660", func(c *server.Config) {
		c.TLS.Terminated, c.TLS.Proxies, c.Program.Authenticator = true, []string{"127.0.0.0/8"}, caller
	})
	check(s, caller, "198.51.100.7:0")
	caller = &seen{}
	s, _ = startSocket(t, "0660", func(c *server.Config) { c.TLS.Terminated, c.Program.Authenticator = true, caller })
	check(s, caller, "127.0.0.9:0")
	// Without tls.terminated, a socket believes nobody.
	caller = &seen{}
	s, _ = startSocket(t, "0660", func(c *server.Config) { c.Program.Authenticator = caller })
	replied(t, s.Post(evaluationPath, readQuestion, said...), 200)
	if from, _ := caller.last(); from != "@" {
		t.Errorf("it comes from %q", from)
	}
}

// People come to the console by https, so their cookies are Secure, though the service speaks plain HTTP.
func TestTerminatedConsole(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	apiKeys, err := keys.Open(data)
	must(t, err)
	key, err := apiKeys.Add(keys.Spec{Name: "mia", Principal: auth.Principal{Type: "User", ID: "mia"}, Grant: auth.Grant{Tenants: []string{"default"}, Permissions: []auth.Permission{auth.Approve}}})
	must(t, err)
	var told written.Text
	s := pdptest.Start(t, bundle(t), withData(data), logTo(&told), terminated("127.0.0.0/8"), func(c *server.Config) {
		c.Listen, c.Console = "127.0.0.1:0", &server.ConsoleConfig{PublicURL: "https://pdp.example.com/console"}
	})
	s.Client = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	got := s.Do(http.MethodPost, "/console/login", "key="+key, "Content-Type", "application/x-www-form-urlencoded",
		"Origin", "https://pdp.example.com", "Sec-Fetch-Site", "same-origin", "X-Forwarded-For", "198.51.100.7")
	cookie := got.Header.Get("Set-Cookie")
	if got.Status != http.StatusSeeOther || !strings.HasPrefix(cookie, "__Host-") || !strings.Contains(cookie, "; Secure") {
		t.Errorf("got %d, %q", got.Status, cookie)
	}
	if !strings.Contains(told.String(), "address=198.51.100.7") {
		t.Errorf("the log does not have the address of the browser:\n%s", told.String())
	}
}
