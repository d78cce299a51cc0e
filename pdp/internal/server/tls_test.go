package server_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/clock"
	"policy-service/pdp/pdptest/written"
)

// withTLS has a test server speak TLS with a certificate of an authority.
func withTLS(a *pdptest.Authority) pdptest.Option {
	return func(c *server.Config) { c.TLS.CertFile, c.TLS.KeyFile = a.Server() }
}

func TestTLS(t *testing.T) {
	t.Parallel()
	a := pdptest.NewAuthority(t)
	s := pdptest.Start(t, bundle(t), withTLS(a))
	s.Trust(a)
	if got := s.Post(evaluationPath, readQuestion); got.Status != 200 || got.Body != `{"decision":true}` {
		t.Errorf("got %d %s, want an allow", got.Status, got.Body)
	}
	if got := s.Get("/.well-known/authzen-configuration"); !strings.HasPrefix(got.Body, `{"policy_decision_point":"https://`+s.Addr()+`",`) {
		t.Errorf("the metadata says %s", got.Body)
	}
	for _, protocol := range []string{"h2", "http/1.1"} {
		conn := dial(t, s.Addr(), &tls.Config{RootCAs: a.Pool, NextProtos: []string{protocol}})
		if got := conn.NegotiatedProtocol; got != protocol {
			t.Errorf("offered %s, got %q", protocol, got)
		}
	}
	if _, err := tls.Dial("tcp", s.Addr(), &tls.Config{RootCAs: a.Pool, MaxVersion: tls.VersionTLS12}); err == nil {
		t.Error("TLS 1.2 is spoken, and nobody allowed it")
	}
	if got := exchange(t, s.Addr(), []byte("GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")); !strings.HasPrefix(got, "HTTP/1.0 400") {
		t.Errorf("without TLS: got %s, want a refusal", got)
	}
}

func TestTLSOlderVersion(t *testing.T) {
	t.Parallel()
	a := pdptest.NewAuthority(t)
	s := pdptest.Start(t, bundle(t), withTLS(a), func(c *server.Config) { c.TLS.MinVersion = "1.2" })
	if got := dial(t, s.Addr(), &tls.Config{RootCAs: a.Pool, MaxVersion: tls.VersionTLS12}).Version; got != tls.VersionTLS12 {
		t.Errorf("got version %x, want TLS 1.2", got)
	}
	if _, err := tls.Dial("tcp", s.Addr(), &tls.Config{RootCAs: a.Pool, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}); err == nil {
		t.Error("TLS 1.1 is spoken")
	}
}

func dial(t *testing.T, addr string, config *tls.Config) tls.ConnectionState {
	t.Helper()
	dialer := &tls.Dialer{NetDialer: &net.Dialer{Timeout: patience}, Config: config}
	conn, err := dialer.DialContext(t.Context(), "tcp", addr)
	must(t, err)
	defer func() { _ = conn.Close() }()
	return conn.(*tls.Conn).ConnectionState()
}

// log is where a server logs, for tests to read meanwhile.
type log struct{ written.Text }

func (l *log) count(text string) int { return strings.Count(l.String(), text) }

// eventually looks until something is so, ever less often: what is waited for needs the processor, too.
func eventually(t testing.TB, what string, so func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for pause := time.Millisecond; !so(); pause = min(2*pause, 20*time.Millisecond) {
		select {
		case <-ctx.Done():
			t.Fatalf("%s: not within %v", what, patience)
		case <-time.After(pause):
		}
	}
}

func TestCertificateReload(t *testing.T) {
	t.Parallel()
	a := pdptest.NewAuthority(t)
	var logged log
	now := clock.At(pdptest.Now)
	s := pdptest.Start(t, bundle(t), withTLS(a), func(c *server.Config) {
		c.Program.Logger, c.Program.PDP.Now = slog.New(slog.NewTextHandler(&logged, nil)), now.Now
	})
	shown := func() *x509.Certificate {
		now.Advance(time.Second) // files are looked at again
		return dial(t, s.Addr(), &tls.Config{RootCAs: a.Pool}).PeerCertificates[0]
	}
	first := shown()
	certFile, keyFile := a.Server()
	eventually(t, "the new certificate is shown", func() bool { return !shown().Equal(first) })
	second := shown()

	key, err := os.ReadFile(keyFile)
	must(t, err)
	const told = "changed TLS files are not usable"
	for i, damage := range []func() error{
		func() error { return os.WriteFile(keyFile, key[:len(key)/2], 0o600) },
		func() error { return os.Remove(certFile) },
	} {
		must(t, damage())
		eventually(t, "the broken pair is told of", func() bool {
			if !shown().Equal(second) {
				t.Fatal("a broken pair changed the certificate")
			}
			return logged.count(told) == i+1
		})
	}
	a.Server()
	eventually(t, "the mended pair is shown", func() bool { return !shown().Equal(second) })
	if n := logged.count(told); n != 2 {
		t.Errorf("told %d times of two broken states", n)
	}
}

func TestMutualTLS(t *testing.T) {
	t.Parallel()
	ours, theirs := pdptest.NewAuthority(t), pdptest.NewAuthority(t)
	rule := auth.MTLSRule{SAN: "pep.example", Grant: auth.Grant{Tenants: []string{"default"}, Permissions: []auth.Permission{auth.Decide}}}
	s := pdptest.Start(t, bundle(t), withTLS(ours), func(c *server.Config) {
		c.TLS.ClientCAFile = ours.File
		c.Auth.MTLS = []auth.MTLSRule{rule}
	})
	for name, test := range map[string]struct {
		certificates []tls.Certificate
		want         int
	}{
		"listed":         {[]tls.Certificate{ours.Client("pep.example")}, 200},
		"not listed":     {[]tls.Certificate{ours.Client("other.example")}, 401},
		"no certificate": {nil, 401},
	} {
		s.Trust(ours, test.certificates...)
		got := s.Post(evaluationPath, readQuestion)
		if got.Status != test.want || (test.want == 401) != (got.Header.Get("WWW-Authenticate") != "") {
			t.Errorf("%s: got %d %v, want %d", name, got.Status, got.Header, test.want)
		}
	}
	s.Trust(ours, theirs.Client("pep.example"))
	if answer, err := s.Client.Post(s.URL+evaluationPath, "application/json", strings.NewReader(readQuestion)); err == nil {
		_ = answer.Body.Close()
		if answer.StatusCode == 200 {
			t.Error("a certificate of another authority got an answer")
		}
	}
}

// What a changed client CA no longer trusts must not come in by a session of before.
func TestClientCAReload(t *testing.T) {
	t.Parallel()
	ours, theirs := pdptest.NewAuthority(t), pdptest.NewAuthority(t)
	now := clock.At(pdptest.Now)
	s := pdptest.Start(t, bundle(t), withTLS(ours), func(c *server.Config) {
		c.TLS.ClientCAFile, c.Program.PDP.Now = ours.File, now.Now
		c.Auth.MTLS = []auth.MTLSRule{{SAN: "pep.example", Grant: auth.Grant{Tenants: []string{"*"}, Permissions: []auth.Permission{auth.Decide}}}}
	})
	config := &tls.Config{RootCAs: ours.Pool, Certificates: []tls.Certificate{ours.Client("pep.example")}, ClientSessionCache: tls.NewLRUClientSessionCache(4)}
	ask := func() string {
		now.Advance(time.Second) // files are looked at again
		conn, err := tls.Dial("tcp", s.Addr(), config)
		if err != nil {
			return err.Error()
		}
		defer func() { _ = conn.Close() }()
		if _, err := conn.Write([]byte("GET /livez HTTP/1.0\r\n\r\n")); err != nil {
			return err.Error()
		}
		b := make([]byte, 12)
		n, err := conn.Read(b)
		if err != nil {
			return err.Error()
		}
		return string(b[:n])
	}
	if got := ask(); got != "HTTP/1.0 200" {
		t.Fatalf("got %q", got)
	}
	other, err := os.ReadFile(theirs.File)
	must(t, err)
	must(t, os.WriteFile(ours.File, other, 0o600))
	eventually(t, "the old authority is no longer trusted", func() bool { return !strings.HasPrefix(ask(), "HTTP") })
}

// An authority that is taken away lets nobody in by a connection of before, either.
func TestClientCAEndsOnOpenConnections(t *testing.T) {
	t.Parallel()
	ours, now := pdptest.NewAuthority(t), clock.At(pdptest.Now)
	s := pdptest.Start(t, bundle(t), withTLS(ours), func(c *server.Config) {
		c.TLS.ClientCAFile, c.Program.PDP.Now = ours.File, now.Now
		c.Auth.MTLS = []auth.MTLSRule{{SAN: "pep.example", Grant: auth.Grant{Tenants: []string{"*"}, Permissions: []auth.Permission{auth.Decide}}}}
	})
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ours.Pool, Certificates: []tls.Certificate{ours.Client("pep.example")}}}
	t.Cleanup(transport.CloseIdleConnections)
	ask := func() int {
		now.Advance(time.Second) // files are looked at again
		r, err := (&http.Client{Transport: transport}).Post("https://"+s.Addr()+evaluationPath, "application/json", strings.NewReader(readQuestion))
		must(t, err) // a connection of now is refused
		_, err = io.Copy(io.Discard, r.Body)
		must(t, errors.Join(err, r.Body.Close()))
		return r.StatusCode
	}
	if got := ask(); got != http.StatusOK {
		t.Fatalf("got %d", got)
	}
	other, err := os.ReadFile(pdptest.NewAuthority(t).File)
	must(t, err)
	must(t, os.WriteFile(ours.File, other, 0o600))
	if got := ask(); got != http.StatusUnauthorized {
		t.Errorf("after its authority was taken away: got %d", got)
	}
}

func TestTLSFilesThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	a := pdptest.NewAuthority(t)
	cert, key := a.Server()
	other, otherKey := pdptest.NewAuthority(t).Server()
	for name, files := range map[string]server.TLSFiles{
		"no such file":    {CertFile: cert + ".not", KeyFile: key},
		"another's key":   {CertFile: cert, KeyFile: otherKey},
		"swapped":         {CertFile: key, KeyFile: cert},
		"no client CA":    {CertFile: cert, KeyFile: key, ClientCAFile: key},
		"no CA file":      {CertFile: cert, KeyFile: key, ClientCAFile: other + ".not"},
		"no key":          {CertFile: cert},
		"no certificate":  {KeyFile: key},
		"client CA alone": {ClientCAFile: a.File},
	} {
		s, err := server.New(server.Config{Program: server.Program{Source: bundle(t)}, Listen: "127.0.0.1:0", TLS: server.TLSConfig{TLSFiles: files}})
		if err == nil {
			err = s.Start(t.Context())
		}
		if err == nil || !strings.Contains(err.Error(), "; ") {
			t.Errorf("%s: got %v, want an error that says what to try", name, err)
		}
	}
}

// A stop while requests come without a pause on one connection of HTTP/2: whatever was
// decided is answered.
func TestStopOverHTTP2(t *testing.T) {
	t.Parallel()
	a := pdptest.NewAuthority(t)
	var decided, answered atomic.Int64
	enough := make(chan struct{})
	s := pdptest.Start(t, bundle(t), withTLS(a), func(c *server.Config) {
		c.Program.PDP.Recorder = recorder(func() error {
			if decided.Add(1) == 200 {
				close(enough)
			}
			return nil
		})
	})
	s.Trust(a)
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for {
				got, err := s.Client.Post(s.URL+evaluationPath, "application/json", strings.NewReader(readQuestion))
				if err != nil {
					return // nobody listens any more
				}
				body, err := io.ReadAll(got.Body)
				_ = got.Body.Close()
				if got.ProtoMajor != 2 || got.StatusCode != 200 || err != nil || string(body) != `{"decision":true}` {
					t.Errorf("got %s %s %s, %v", got.Proto, got.Status, body, err)
				}
				answered.Add(1)
			}
		})
	}
	<-enough
	stopAndWait(t, s)
	all.Wait()
	if decided.Load() != answered.Load() {
		t.Errorf("%d were decided and %d answered", decided.Load(), answered.Load())
	}
}
