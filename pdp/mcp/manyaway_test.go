package mcp_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"policy-service/pdp/mcp"
	"policy-service/pdp/mcp/mcptest"
)

// manyDoor stands before a server, and lets through what it is told to.
type manyDoor struct {
	mu    sync.Mutex
	state string // "" lets all through, "away" nothing, and "hangs" lets wait
	moved chan struct{}
	// came is told of each request that waits, and ended of each session that is ended, if they are not nil.
	came, ended chan struct{}
}

func (d *manyDoor) set(state string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.state = state
	if d.moved != nil {
		close(d.moved)
	}
	d.moved = make(chan struct{})
}

func (d *manyDoor) before(t testing.TB) func(string) string {
	d.set(d.state)
	return func(server string) string {
		u, err := url.Parse(server)
		orFail(t, err)
		to := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: u.Scheme, Host: u.Host}) }, FlushInterval: -1, ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }}
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			for {
				d.mu.Lock()
				state, moved := d.state, d.moved
				d.mu.Unlock()
				switch {
				case state == "away":
					panic(http.ErrAbortHandler)
				case state == "hangs":
					if d.came != nil {
						d.came <- struct{}{}
					}
					select {
					case <-moved:
						continue
					case <-r.Context().Done():
						return
					}
				}
				to.ServeHTTP(w, r)
				if r.Method == http.MethodDelete && d.ended != nil {
					d.ended <- struct{}{}
				}
				return
			}
		}))
		t.Cleanup(s.Close)
		t.Cleanup(func() { d.set("away") })
		return s.URL + u.Path
	}
}

// Who gives up before a session has begun leaves nothing behind, also at a server that was slow to begin it.
func TestManyGivenUp(t *testing.T) {
	t.Parallel()
	door := &manyDoor{state: "hangs", came: make(chan struct{}, 8), ended: make(chan struct{}, 8)}
	opened, spans := make(chan struct{}, 8), tracetest.NewSpanRecorder()
	m := newMany(t, camp{deps: mcp.Deps{TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))}}, map[string]manyServer{
		"a": {answers: mcptest.Answers{Eras: []string{"legacy"}, Heard: func(g mcptest.Got) { opened <- struct{}{} }}},
		"b": {answers: mcptest.Answers{Eras: []string{"legacy"}}, before: door.before(t)},
	})
	v := m.stranger("legacy", m.issuer.Token(t, nil))
	ctx, giveUp := context.WithCancel(t.Context())
	over := make(chan error, 1)
	params := `{"protocolVersion":"2025-11-25","clientInfo":{"name":"x","version":"1"},"capabilities":{}}`
	go func() {
		_, err := v.try(ctx, http.MethodPost, v.text("initialize", params), v.headers("initialize", params)...)
		over <- err
	}()
	<-opened
	<-door.came
	giveUp()
	if err := <-over; err == nil {
		t.Error("it was answered")
	}
	mcptest.Until(t, "the gateway has noticed", func() bool {
		return slices.ContainsFunc(spans.Ended(), func(s sdktrace.ReadOnlySpan) bool { return s.Name() == "mcp initialize" })
	})
	door.set("")
	select {
	case <-door.ended:
	case <-time.After(time.Minute):
		t.Error("the session with the slow server goes on")
	}
}
