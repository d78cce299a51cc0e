package server_test

import (
	"strings"
	"testing"

	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/auth/keys"
	"policy-service/pdp/pdptest"
)

// forwardings are headers that say a request came by a proxy, in whatever form.
var forwardings = []string{
	"X-Forwarded-For: 192.0.2.1", "x-forwarded-for: 127.0.0.1", "X-FORWARDED-PROTO: https", "X-Forwarded-Host: localhost", "X-Forwarded-Anything: 1",
	"Forwarded: for=192.0.2.1", "forwarded:", "X-Forwarded-For:", "VIA: 1.1 proxy", "via:", "X-Real-IP: 192.0.2.1",
	"Trailer: X-Forwarded-For", "trailer: via",
}

// A proxy that sends the upstream's Host must not let the whole world in: on no route,
// and on the admin listener neither.
func TestAProxyOpensNoDoorWithoutCredentials(t *testing.T) {
	t.Parallel()
	s := pdptest.Start(t, bundle(t), withData(t.TempDir()), func(c *server.Config) { c.AdminListen = "127.0.0.1:0" })
	const chunked = "\nTransfer-Encoding: chunked\nContent-Type: application/json\n\n0\r\n\r\n\n" // rawRequest takes the last one away
	ask := func(address, route, header string) string {
		return exchange(t, address, rawRequest([]byte(route+" HTTP/1.1\nHost: "+address+"\n"+header+chunked)))
	}
	routes, err := server.Routes()
	must(t, err)
	for _, route := range routes {
		path := strings.NewReplacer("{tenant}", "acme", "{id}", "00000000-0000-7000-8000-000000000001", "{digest}", "h1:x").Replace(route)
		if plain := ask(s.Addr(), path, "X-Plain: 1"); strings.Contains(plain, "forwarded by a proxy") {
			t.Fatalf("%s without such a header: got %s", path, plain)
		}
		for _, header := range forwardings {
			got := ask(s.Addr(), path, header)
			if strings.HasSuffix(path, "/livez") || strings.HasSuffix(path, "/readyz") {
				if !strings.HasPrefix(got, "HTTP/1.1 200 ") || strings.Contains(got, "digest") {
					t.Errorf("%s with %q: got %s, want its status alone", path, header, got)
				}
			} else if !strings.HasPrefix(got, "HTTP/1.1 403 ") || !strings.Contains(got, "json") || !strings.Contains(got, "forwarded by a proxy") {
				t.Errorf("%s with %q: got %s, want 403", path, header, got)
			}
		}
	}
	for _, path := range []string{"GET /metrics", "GET /debug/pprof/", "GET /debug/pprof/cmdline"} {
		for _, header := range forwardings {
			if got := ask(s.AdminAddr(), path, header); !strings.HasPrefix(got, "HTTP/1.1 403 ") {
				t.Errorf("%s of the admin listener with %q: got %.80s, want 403", path, header, got)
			}
		}
	}
}

// Where there are credentials they alone decide, at every moment: who has one may come by
// a proxy, and that the last one is revoked opens nothing.
func TestAProxyIsWelcomeWithCredentials(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := pdptest.Start(t, bundle(t), withData(dir))
	ask := func(headers ...string) int {
		return s.Post(evaluationPath, readQuestion, append(headers, "X-Forwarded-For", "192.0.2.1", "Via", "1.1 proxy")...).Status
	}
	plain := func() int { return s.Post(evaluationPath, readQuestion).Status }
	if byProxy, got := ask(), plain(); byProxy != 403 || got != 200 {
		t.Fatalf("before there is a key: got %d by a proxy and %d without one, want 403 and 200", byProxy, got)
	}
	credential := addKey(t, dir, "pep", auth.Grant{})
	eventually(t, "the key is known", func() bool { return ask("Authorization", credential) == 200 })
	if byProxy, got := ask(), plain(); byProxy != 401 || got != 401 {
		t.Errorf("without the key: got %d by a proxy and %d without one, want 401", byProxy, got)
	}
	apiKeys, err := keys.Open(dir)
	must(t, err)
	must(t, apiKeys.Revoke("pep"))
	eventually(t, "the key is revoked", func() bool { return ask("Authorization", credential) == 401 })
	if got := plain(); got != 401 {
		t.Errorf("after the last key was revoked: got %d, want 401", got)
	}
}

// A service that others are told to come to does not start without credentials, wherever
// it listens.
func TestAPublicURLNeedsCredentials(t *testing.T) {
	t.Parallel()
	keyed := t.TempDir()
	addKey(t, keyed, "pep", auth.Grant{})
	own := func(c *server.Config) { c.Program.Authenticator = asCaller{} }
	for _, test := range []struct {
		url    string
		option pdptest.Option
		ok     bool
	}{
		{"https://pdp.example.com", withData(""), false},
		{"https://pdp.example.com/authz", withData(t.TempDir()), false},
		{"http://pdp.example.com:8180", withData(t.TempDir()), false},
		{"https://localhost.example.com", withData(t.TempDir()), false},
		{"https://127.0.0.1.example.com", withData(t.TempDir()), false},
		{"https://10.0.0.1", withData(t.TempDir()), false},
		{"http://127.1", withData(t.TempDir()), false},
		{"https://pdp.example.com", func(c *server.Config) { c.Program.Authenticator = auth.Loopback{} }, false},
		{"https://pdp.example.com", withData(keyed), true},
		{"https://pdp.example.com", own, true},
		{"http://localhost:8180", withData(""), true},
		{"https://LOCALHOST/authz", withData(t.TempDir()), true},
		{"http://127.0.0.1:8180", withData(t.TempDir()), true},
		{"http://[::1]:8180", withData(t.TempDir()), true},
	} {
		config := server.Config{Program: server.Program{Source: bundle(t)}, Listen: "127.0.0.1:0", PublicURL: test.url}
		test.option(&config)
		s, err := server.New(config)
		if err == nil {
			if err = s.Start(t.Context()); err == nil {
				err = s.Stop(t.Context())
			}
		}
		if (err == nil) != test.ok || err != nil && !strings.Contains(err.Error(), "refusing to serve "+test.url+": without credentials") {
			t.Errorf("%s: got %v, want accepted: %v", test.url, err, test.ok)
		}
	}
}
