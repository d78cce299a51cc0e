package mcp_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
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

var manyModernOrLegacy = map[string]mcptest.Answers{"legacy": {Eras: []string{"legacy"}}, "modern": {Eras: []string{"modern"}}}

// A server that is away leaves the others as they are, and the metric says which it is. Clients are told when it is back, also
// one that listens only after that.
func TestManyAway(t *testing.T) {
	t.Parallel()
	for up, answers := range manyModernOrLegacy {
		for _, era := range eras {
			t.Run(era+" to "+up, func(t *testing.T) {
				t.Parallel()
				door := &manyDoor{state: "away"}
				reader, deps := metered()
				m := newMany(t, camp{deps: deps}, map[string]manyServer{
					"a": {answers: answers}, "b": {answers: answers, before: door.before(t)},
				})
				v, later := m.visitor(era, nil), m.visitor(era, mcptest.Claims{"client_id": "agent-2"})
				list := func(want ...string) {
					t.Helper()
					if names := manyNames(t, v.ask("tools/list", `{}`), "tools", "name"); !slices.Equal(names, want) {
						t.Errorf("the tools are %q, want %q", names, want)
					}
				}
				list("a__look", "a__change")
				if got := later.ask("tools/list", `{}`); strings.Contains(got.text, "b__look") {
					t.Error(got)
				}
				if names := manyNames(t, v.ask("prompts/list", `{}`), "prompts", "name"); !slices.Equal(names, []string{"a__greet"}) {
					t.Errorf("the prompts are %q", names)
				}
				v.call("a__look", `{}`).runs(t)
				v.call("b__look", `{}`).refused(t, -32603, "upstream_unavailable", "")
				if err := m.gateway.Ready(); err == nil || !strings.Contains(err.Error(), "the MCP server b did not answer") || strings.Contains(err.Error(), "server a") {
					t.Errorf("ready: %v", err)
				}
				available := func(want string) {
					t.Helper()
					if got := fmt.Sprint(countedBy(reader, "policy_service.mcp.available", "of"), countedBy(reader, "policy_service.mcp.available", "server")); got != want {
						t.Errorf("available are %v", got)
					}
				}
				available("map[pdp:1 server:1] map[:1 a:1 b:0]")
				if !strings.Contains(m.logs.String(), `"a server is left out","server":"b"`) {
					t.Error("the log does not say so")
				}
				s := v.stream(manyListens)
				if era == "modern" {
					s.hears("acknowledged")
				}
				door.set("")
				v.call("b__look", `{}`).runs(t)
				for _, what := range []string{"tools", "prompts", "resources"} {
					if what != "resources" || era == "legacy" {
						s.hears(what + "/list_changed")
					}
				}
				list("a__look", "a__change", "b__look", "b__change")
				if err := m.gateway.Ready(); err != nil {
					t.Errorf("ready: %v", err)
				}
				available("map[pdp:1 server:2] map[:1 a:1 b:1]")
				later.call("b__look", `{}`).runs(t)
				owed := later.stream(manyListens)
				if era == "modern" {
					owed.hears("acknowledged")
				}
				owed.hears("tools/list_changed")
				door.set("away") // between list and call
				v.call("b__look", `{}`).refused(t, -32603, "", "")
				v.call("a__look", `{}`).runs(t)
			})
		}
	}
}

// A server that hangs has the others wait for a moment. What it says at last counts. It takes as long as a gateway is patient,
// twice: five seconds, and then half of that.
func TestManyHangs(t *testing.T) {
	inEras(t, func(t *testing.T, era string) {
		door := &manyDoor{state: "hangs"}
		m := newMany(t, camp{}, map[string]manyServer{"a": {}, "b": {before: door.before(t)}})
		v := m.stranger(era, m.issuer.Token(t, nil))
		v.begin()
		if era == "modern" {
			if got := v.ask("server/discover", `{}`); !got.ran() {
				t.Fatal(got)
			}
		}
		v.call("a__look", `{}`).runs(t)
		if names := manyNames(t, v.ask("tools/list", `{}`), "tools", "name"); !slices.Equal(names, []string{"a__look", "a__change"}) {
			t.Errorf("the tools are %q", names)
		}
		if err := m.gateway.Ready(); err == nil || !strings.Contains(err.Error(), "server b") {
			t.Errorf("ready: %v", err)
		}
		s := v.stream(manyListens)
		if era == "modern" {
			s.hears("acknowledged")
		}
		door.set("")
		s.hears("tools/list_changed")
		if names := manyNames(t, v.ask("tools/list", `{}`), "tools", "name"); !slices.Contains(names, "b__look") {
			t.Errorf("the tools are %q", names)
		}
	})
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
