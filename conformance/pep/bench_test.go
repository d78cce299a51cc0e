package pep

import (
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

// A PEP that is not wired to the bench gets no report of failures that say nothing, but what is missing.
func TestNotWired(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		change func(w *Wiring, other Wiring)
		says   string
	}{
		{"another issuer", func(w *Wiring, other Wiring) { w.Issuer = other.Issuer }, "status 401"},
		{"another upstream", func(w *Wiring, other Wiring) { w.Upstream = other.Upstream }, "nobody reports that it was executed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, other := openBench(t), openBench(t)
			wired := *b
			c.change(&wired.Wiring, other.Wiring)
			url := startStub(t, &wired, gateway)
			_, err := b.Judge(t.Context(), Target{URL: url, Resource: stubResource, Timeout: patience})
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, want %q", err, c.says)
			}
		})
	}
}

func TestNobodyThere(t *testing.T) {
	t.Parallel()
	b := openBench(t)
	for _, url := range []string{"http://127.0.0.1:1/mcp", "127.0.0.1/mcp", "ftp://127.0.0.1/mcp"} { // no test is given port 1
		if _, err := b.Judge(t.Context(), Target{URL: url}); err == nil {
			t.Errorf("%s got a report", url)
		}
	}
	if _, err := b.Judge(t.Context(), Target{URL: "http://127.0.0.1:1/mcp", Plans: []string{"basic-core"}}); err == nil || !strings.Contains(err.Error(), "coaz-sep") {
		t.Errorf("a plan of PDPs: %v", err)
	}
}

// All that the PEP talks to can speak TLS.
func TestTLS(t *testing.T) {
	t.Parallel()
	known := httptest.NewTLSServer(http.NotFoundHandler())
	defer known.Close()
	b, err := Open(Options{TLS: &known.TLS.Certificates[0]})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.Close() }()
	for _, url := range []string{b.Wiring.PDP + "/.well-known/authzen-configuration", b.Wiring.Issuer + "/.well-known/openid-configuration"} {
		resp, err := known.Client().Get(url)
		if err != nil {
			t.Fatal(err)
		}
		if _ = resp.Body.Close(); resp.StatusCode != http.StatusOK || !strings.HasPrefix(url, "https://127.0.0.1:") {
			t.Errorf("%s: %d", url, resp.StatusCode)
		}
	}
	if _, err := Open(Options{PDP: strings.TrimPrefix(b.Wiring.PDP, "https://")}); err == nil {
		t.Error("two benches listen on one address")
	}
}

// Nobody on another machine gets to the bench unless an address says so.
func TestOnlyHere(t *testing.T) {
	t.Parallel()
	b := openBench(t)
	for _, at := range []string{b.Wiring.PDP, b.Wiring.Issuer, b.Wiring.Upstream} {
		u, err := url.Parse(at)
		if err != nil {
			t.Fatal(err)
		}
		here, err := net.Dial("tcp", u.Host)
		if err != nil {
			t.Fatal(err)
		}
		_ = here.Close()
		// Who listens on every address listens on this one, too.
		if other, err := net.Dial("tcp", net.JoinHostPort("127.0.0.2", u.Port())); err == nil {
			_ = other.Close()
			t.Errorf("%s answers on another address, too", at)
		}
	}
}
