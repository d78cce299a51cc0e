package mcp_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"policy-service/pdp/mcp"
	"policy-service/pdp/mcp/mcptest"
	"policy-service/pdp/pdptest"
)

// leftMoment is when somebody seals that somebody else waits for.
type leftMoment struct{ wanted, come, gone chan struct{} }

// now stops whoever looks at the clock to seal once it is wanted. Others, such as who watches the PDP, go on.
func (m *leftMoment) now() time.Time {
	if callers := make([]byte, 4<<10); !strings.Contains(string(callers[:runtime.Stack(callers, false)]), "seal.(*Ring).Seal(") {
		return time.Now()
	}
	select {
	case <-m.wanted:
		m.come <- struct{}{}
		<-m.gone
	default:
	}
	return time.Now()
}

// A client leaves its stream in the very moment in which the server asks it something by it. Nothing is written to an answer
// that is over: its connection is gone, or has the answer to somebody else on it by then.
func TestAsksWhoHasLeft(t *testing.T) {
	t.Parallel()
	at := &leftMoment{make(chan struct{}, 1), make(chan struct{}), make(chan struct{})}
	upstream := mcptest.NewRecorder(t, mcptest.Answers{
		Eras: []string{"legacy"},
		Listen: func(c *mcptest.Call) {
			at.wanted <- struct{}{}
			c.Message(`{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"m","requestedSchema":{"type":"object","properties":{}}}}`)
			<-c.Context.Done()
		},
	})
	key := make([]byte, 32)
	_, _ = rand.Read(key)
	g, err := mcp.New(t.Context(), mcp.Config{
		Listen: "127.0.0.1:0", Resource: "http://127.0.0.1:8181/mcp", PDP: mcp.PDPConfig{URL: pdptest.Start(t, permitAll, open).URL},
		Identity:  mcp.IdentityConfig{Static: &mcp.StaticConfig{Sub: "alice", ClientID: "agent-1"}},
		Seal:      mcp.SealConfig{KeyFiles: []string{secretFile(t, string(key))}},
		Upstreams: map[string]mcp.UpstreamConfig{"up": {URL: upstream.URL, AllowNetworks: []string{"127.0.0.0/8"}, ServerRequests: mcp.ServerRequests{Elicitation: mcp.RelayOn}}},
	}, mcp.Deps{Logger: slog.New(slog.NewTextHandler(&logged{t}, nil)), Now: at.now})
	orFail(t, err)
	over := make(chan struct{}, 1)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.Handler().ServeHTTP(w, r)
		if r.Method == http.MethodGet {
			over <- struct{}{}
		}
	}))
	t.Cleanup(func() {
		s.Close()
		orFail(t, g.Close())
	})
	session := legacySession(t, s.URL+mcp.Endpoint)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, session.at, nil)
	orFail(t, err)
	r.Header.Set("Accept", "text/event-stream")
	r.Header.Set("Mcp-Session-Id", session.id)
	stream, err := http.DefaultClient.Do(r)
	orFail(t, err)
	defer func() { _ = stream.Body.Close() }()
	<-at.come
	leave()
	<-over
	close(at.gone)
	mcptest.Until(t, "the server is told", func() bool {
		for _, got := range upstream.Got() {
			if strings.Contains(string(got.Body), `"id":"q"`) {
				return strings.Contains(string(got.Body), `"error"`)
			}
		}
		return false
	})
}

// What a server says of the gateway's credentials, or of itself, is for no client.
func TestWordsAboutTheGateway(t *testing.T) {
	t.Parallel()
	for _, during := range []string{"server/discover", "initialize", "tools/list", "tools/call"} {
		for _, status := range []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests, http.StatusBadGateway} {
			t.Run(fmt.Sprint(during, status), func(t *testing.T) {
				of := "modern"
				if during == "initialize" {
					of = "legacy"
				}
				upstream := mcptest.NewRecorder(t, mcptest.Answers{Eras: []string{of}, Tools: oneTool, Handle: func(c *mcptest.Call) bool {
					if c.Method != during {
						return false
					}
					c.Raw(status, "application/json", `{"jsonrpc":"2.0","id":null,"error":{"code":-32099,"message":"the token of the gateway has ended"}}`)
					return true
				}})
				at, _ := through(t, passage{name: "up", upstream: upstream.URL})
				if got := callTool(t, at, ""); !strings.Contains(got, "upstream unavailable") || strings.Contains(got, "token") {
					t.Errorf("the client gets %s", got)
				}
			})
		}
	}
}

// legacyOne is a session of the legacy era, with a client that takes forms.
type legacyOne struct{ at, id string }

func legacySession(t *testing.T, at string) legacyOne {
	t.Helper()
	s := legacyOne{at: at}
	answer := s.do(t, http.MethodPost, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","clientInfo":{"name":"c","version":"1"},"capabilities":{"elicitation":{}}}}`)
	if got := readAll(t, answer.Body); !strings.Contains(got, `"result"`) {
		t.Fatal(got)
	}
	s.id = answer.Header.Get("Mcp-Session-Id")
	return s
}

func (s legacyOne) do(t *testing.T, method, body string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.at, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for name, v := range map[string]string{"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "Mcp-Session-Id": s.id} {
		if v != "" {
			r.Header.Set(name, v)
		}
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}
