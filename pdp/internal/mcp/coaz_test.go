package mcp_test

import (
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"policy-service/conformance"
	"policy-service/conformance/pep"
	"policy-service/pdp/internal/mcp"
	"policy-service/pdp/internal/server/config"
)

// letter is the configuration in which the gateway does what the COAZ profile says, and no more, as REFERENCE.md shows it.
func letter(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../../mcp/REFERENCE.md")
	orFail(t, err)
	_, text, found := strings.Cut(string(page), "```yaml\nlisten: 127.0.0.1:8391\n")
	text, _, _ = strings.Cut(text, "```")
	if !found {
		t.Fatal("REFERENCE.md does not show it")
	}
	return text
}

// The gateway passes the conformance plans of COAZ, in both eras. What a server of the other era has no method for is
// never executed there, so a client of the legacy era is judged before a server of its own.
// It takes some seconds: each plan has some three hundred questions.
func TestCOAZ(t *testing.T) {
	t.Parallel()
	for _, way := range []struct {
		client   pep.Era
		upstream string
		least    int
	}{{pep.Legacy, "legacy", 300}, {pep.Modern, "legacy", 290}, {pep.Modern, "modern", 290}} {
		t.Run(string(way.client)+" to "+way.upstream, func(t *testing.T) {
			t.Parallel()
			bench, err := pep.Open(pep.Options{})
			orFail(t, err)
			t.Cleanup(func() {
				if err := bench.Close(); err != nil {
					t.Error(err)
				}
			})
			url := startLetter(t, bench.Wiring, way.upstream)
			r, err := bench.Judge(t.Context(), pep.Target{URL: url, Plans: []string{"coaz", "coaz-sep"}, Eras: []pep.Era{way.client}, Timeout: time.Minute})
			orFail(t, err)
			// What no mapping is for, the binding wants denied, and MCP wants unknown: a SHOULD, and the gateway does as MCP says.
			advised := slices.IndexFunc(r.Results, func(one conformance.Result) bool {
				return one.Outcome == conformance.Advised && one.ID != "unknown-code"
			})
			if !r.OK() || advised >= 0 || r.Count(conformance.Passed) < way.least {
				var text strings.Builder
				if err := r.WriteText(&text); err != nil {
					t.Error(err)
				}
				t.Errorf("only %d passed\n%s", r.Count(conformance.Passed), &text)
			}
		})
	}
}

// startLetter starts a gateway with the configuration that the page shows, and returns its URL.
func startLetter(t *testing.T, w pep.Wiring, era string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	orFail(t, err)
	url := "http://" + l.Addr().String() + mcp.Endpoint
	text := strings.NewReplacer("http://127.0.0.1:8391/mcp", url, "http://127.0.0.1:8392", w.PDP, "http://127.0.0.1:8394", w.Issuer,
		"http://127.0.0.1:8393/mcp", w.Upstream, "[legacy]", "["+era+"]").Replace(letter(t))
	text += "limits: {rate: 1000/s, burst: 1000}\n" // the plans ask as one person, as fast as they can
	file := filepath.Join(t.TempDir(), "gateway.yaml")
	orFail(t, os.WriteFile(file, []byte(text), 0o600))
	var c mcp.Config
	if _, err := mcp.Form.Read(config.Given{File: file}, &c); err != nil {
		t.Fatal(err)
	}
	g, err := mcp.New(t.Context(), c, mcp.Deps{Logger: slog.New(slog.NewTextHandler(&logged{t}, nil))})
	orFail(t, err)
	s := &httptest.Server{Listener: l, Config: &http.Server{Handler: g.Handler()}}
	s.Start()
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	return url
}
