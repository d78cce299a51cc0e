package mcp_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"policy-service/pdp/internal/mcp"
	"policy-service/pdp/pdptest/mcptest"
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
	shared := sealed(t) // only a ring with keys from files looks at the clock to seal
	s := newSiege(t, camp{now: at.now, change: func(c *mcp.Config) { relays(c); shared(c) }, answers: mcptest.Answers{Eras: []string{"legacy"}, Listen: func(c *mcptest.Call) {
		at.wanted <- struct{}{}
		c.Message(`{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"m","requestedSchema":{"type":"object","properties":{}}}}`)
		<-c.Context.Done()
	}}})
	over := make(chan struct{}, 1)
	served := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.gateway.Handler().ServeHTTP(w, r)
		if r.Method == http.MethodGet {
			over <- struct{}{}
		}
	}))
	t.Cleanup(served.Close)
	there := *s
	there.url = served.URL + mcp.Endpoint
	v := there.listener(nil)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	stream := v.opens(ctx, http.MethodGet, "", "")
	defer func() { _ = stream.Body.Close() }()
	<-at.come
	leave()
	<-over
	close(at.gone)
	mcptest.Until(t, "the server is told", func() bool {
		for _, got := range s.rec.Got() {
			if strings.Contains(string(got.Body), `"id":"q"`) {
				return strings.Contains(string(got.Body), `"error"`)
			}
		}
		return false
	})
}
