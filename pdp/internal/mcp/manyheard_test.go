package mcp_test

import (
	"bufio"
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"policy-service/pdp/internal/mcp"
)

// manyStream is what a client hears by itself, line by line.
type manyStream struct {
	t     testing.TB
	lines *bufio.Scanner
	end   func()
}

// stream opens the stream of a client: params are what it listens to in the modern era.
func (v *visitor) stream(params string) *manyStream {
	v.s.t.Helper()
	ctx, cancel := context.WithTimeout(v.s.t.Context(), 5*time.Minute)
	verb := http.MethodGet
	if v.era == "modern" {
		verb = http.MethodPost
	}
	a := v.opens(ctx, verb, "subscriptions/listen", params)
	if a.StatusCode != http.StatusOK {
		v.s.t.Fatal(a.Status)
	}
	end := func() {
		cancel()
		_ = a.Body.Close()
	}
	v.s.t.Cleanup(end)
	return &manyStream{v.s.t, bufio.NewScanner(a.Body), end}
}

// hears fails unless the next message has a text in it, and gives the message. That it is welcome a client hears at any time.
func (m *manyStream) hears(want string) string {
	m.t.Helper()
	for m.lines.Scan() {
		if text, ok := strings.CutPrefix(m.lines.Text(), "data: "); ok && !strings.Contains(text, `"notifications/welcome"`) {
			if !strings.Contains(text, want) {
				m.t.Fatalf("heard %s, want %s", text, want)
			}
			return text
		}
	}
	m.t.Fatalf("the stream has ended, want %s: %v", want, m.lines.Err())
	return ""
}

// flushed does something once, before whoever is answered with a stream knows of it.
type flushed struct {
	http.ResponseWriter
	once sync.Once
	do   func()
}

func (f *flushed) Flush() {
	f.once.Do(f.do)
	f.ResponseWriter.(http.Flusher).Flush()
}

func (f *flushed) SetWriteDeadline(at time.Time) error {
	return http.NewResponseController(f.ResponseWriter).SetWriteDeadline(at)
}

// Nothing that is said once a client knows of its stream is missed.
func TestManyStreamMissesNothing(t *testing.T) {
	t.Parallel()
	tap := newWiretap(t)
	tap.answers(func(http.ResponseWriter, *http.Request, []byte) bool { panic(http.ErrAbortHandler) })
	m := newMany(t, camp{}, map[string]manyServer{"a": {}, "b": {before: tap.beforeServer}})
	v := m.visitor("legacy", nil)
	if names := manyNames(t, v.ask("tools/list", `{}`), "tools", "name"); !slices.Equal(names, []string{"a__look", "a__change"}) {
		t.Fatalf("the tools are %q", names)
	}
	back := func() { // the call is answered once whoever listens was told
		tap.answers(nil)
		v.call("b__look", `{}`).runs(t)
	}
	all := m.gateway.Handler()
	served := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			w = &flushed{ResponseWriter: w, do: back}
		}
		all.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		served.CloseClientConnections()
		served.Close()
	})
	there := *m.siege
	there.url = served.URL + mcp.Endpoint
	listener := &visitor{s: &there, era: v.era, token: v.token, session: v.session, client: v.client, heard: &kept{}}
	listener.stream("").hears("list_changed")
}
