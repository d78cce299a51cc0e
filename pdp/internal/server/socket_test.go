package server_test

import (
	"context"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/pdptest"
)

// onSocket has a test server listen on a Unix socket.
func onSocket(path, mode string) pdptest.Option {
	return func(c *server.Config) { c.Listen, c.ListenMode = "unix:"+path, mode }
}

// startSocket runs a server on a Unix socket, and asks it there.
func startSocket(t *testing.T, mode string, options ...pdptest.Option) (s *pdptest.Server, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "pdp.sock")
	s = pdptest.Start(t, bundle(t), append(options, onSocket(path, mode))...)
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}
	t.Cleanup(transport.CloseIdleConnections)
	s.URL, s.Client = "http://localhost", &http.Client{Transport: transport}
	return s, path
}

// A socket of its user alone is as closed as loopback: it needs no credentials, and lets nobody in by a proxy or by a name
// that a page in a browser could have.
func TestSocketWithoutCredentials(t *testing.T) {
	t.Parallel()
	s, path := startSocket(t, "", withData(t.TempDir()))
	if s.Addr() != "unix:"+path {
		t.Errorf("the address is %q", s.Addr())
	}
	if info, err := os.Lstat(path); err != nil || info.Mode() != fs.ModeSocket|0o600 {
		t.Errorf("got %v, %v", info.Mode(), err)
	}
	replied(t, s.Post(evaluationPath, readQuestion), 200, `{"decision":true}`)
	replied(t, s.Post(evaluationPath, readQuestion, "X-Forwarded-For", "127.0.0.1"), 403, "forwarded by a proxy")
	replied(t, s.Get("/.well-known/authzen-configuration"), 404, "public_url")
	s.URL = "http://pdp.example"
	replied(t, s.Post(evaluationPath, readQuestion), 403, "the Host header must be a loopback name")

	client, err := authzenclient.New(s.Addr())
	must(t, err)
	alice := evaluation.Request{Subject: evaluation.Entity{Type: "user", ID: "alice"}, Action: evaluation.Action{Name: "read"}, Resource: evaluation.Entity{Type: "doc", ID: "1"}}
	if d := client.Evaluate(t.Context(), alice); d.Err() != nil {
		t.Errorf("the client of programs: %v", d.Err())
	}
	if _, err := authzenclient.New(s.Addr(), authzenclient.WithHTTPClient(http.DefaultClient)); err == nil {
		t.Error("a client with connections of its own does not ask the socket")
	}
	must(t, s.Stop(t.Context()))
	if _, err := os.Lstat(path); err == nil {
		t.Error("the socket is left after the stop")
	}
}

// A socket for others than its user needs credentials, from the start and for each request.
func TestWiderSocketNeedsCredentials(t *testing.T) {
	t.Parallel()
	keyed, path := t.TempDir(), filepath.Join(t.TempDir(), "pdp.sock")
	key := addKey(t, keyed, "pep", auth.Grant{Tenants: []string{"default"}, Permissions: []auth.Permission{auth.Decide}})
	for _, mode := range []string{"0660", "0606", "0620", "0666"} {
		refusedAtStart(t, "without credentials anybody could ask", withData(t.TempDir()), onSocket(path, mode))
		if _, err := os.Lstat(path); err == nil {
			t.Errorf("mode %s: the socket is left", mode)
		}
	}
	s, path := startSocket(t, "0660", withData(keyed))
	if info, err := os.Lstat(path); err != nil || info.Mode() != fs.ModeSocket|0o660 {
		t.Errorf("got %v, %v", info.Mode(), err)
	}
	replied(t, s.Post(evaluationPath, readQuestion), 401)
	replied(t, s.Post(evaluationPath, readQuestion, "Authorization", key), 200)
	s.URL = "http://pdp.example" // with credentials they alone decide
	replied(t, s.Post(evaluationPath, readQuestion, "Authorization", key), 200)
}

// refusedAtStart wants that a server does not start, and why.
func refusedAtStart(t *testing.T, want string, options ...pdptest.Option) {
	t.Helper()
	config := server.Config{Program: server.Program{Source: bundle(t)}, Listen: "127.0.0.1:0"}
	for _, option := range options {
		option(&config)
	}
	s, err := server.New(config)
	if err == nil {
		if err = s.Start(t.Context()); err == nil {
			err = s.Stop(t.Context())
		}
	}
	if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "; ") {
		t.Errorf("got %v, want %q and what to try", err, want)
	}
}

func TestSocketThatCannotBe(t *testing.T) {
	t.Parallel()
	dir, a := t.TempDir(), pdptest.NewAuthority(t)
	_, live := startSocket(t, "")
	path := filepath.Join(dir, "pdp.sock")
	must(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	for want, option := range map[string]pdptest.Option{
		"another process answers there":                             onSocket(live, ""),
		"there is a file, not a socket":                             onSocket(filepath.Join(dir, "file"), ""),
		"needs its whole path":                                      onSocket("pdp.sock", ""),
		"longer than the system allows":                             onSocket(filepath.Join(dir, strings.Repeat("n", 200)), ""),
		"see to its directory":                                      onSocket(filepath.Join(dir, "none", "pdp.sock"), ""),
		`"0777" is no mode of a socket`:                             onSocket(path, "0777"),
		"listen_mode is the mode of a Unix socket, and listen is":   func(c *server.Config) { c.ListenMode = "0660" },
		"a Unix socket speaks plain HTTP":                           both(onSocket(path, ""), withTLS(a)),
		"refusing to serve https://pdp.example.com":                 both(onSocket(path, ""), func(c *server.Config) { c.PublicURL = "https://pdp.example.com" }),
		"refusing to serve a proxy that terminates TLS":             both(onSocket(path, ""), func(c *server.Config) { c.TLS.Terminated = true }),
		"console.public_url is missing":                             both(both(onSocket(path, ""), withData(t.TempDir())), func(c *server.Config) { c.Console = &server.ConsoleConfig{} }),
		`console.listen is "unix:/run/c.sock", which is no address`: both(withData(t.TempDir()), func(c *server.Config) { c.Console = &server.ConsoleConfig{Listen: "unix:/run/c.sock"} }),
		"admin_listen is":                                           func(c *server.Config) { c.AdminListen = "unix:" + path },
	} {
		refusedAtStart(t, want, option)
	}
}

func both(one, other pdptest.Option) pdptest.Option {
	return func(c *server.Config) { one(c); other(c) }
}
