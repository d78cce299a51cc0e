package upstream_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"policy-service/pdp/internal/mcp/internal/era"
	"policy-service/pdp/internal/mcp/internal/upstream"
	"policy-service/pdp/internal/rpc"
	"policy-service/pdp/pdptest/mcptest"
)

// methods are those of the messages that a server got.
func methods(got []received) (all []string) {
	for _, r := range got {
		m, _ := rpc.Parse([]byte(r.body))
		all = append(all, strings.TrimSpace(r.http+" "+m.Method))
	}
	return all
}

const (
	discovers   = "POST server/discover"
	initializes = "POST initialize"
	initialized = "POST notifications/initialized"
	ends        = "DELETE"
)

func TestEraIsOfServer(t *testing.T) {
	for _, c := range []struct {
		era           era.Era
		allowed       []era.Era
		first, second []string
	}{
		{era.Modern, nil, []string{discovers}, []string{discovers}},
		{era.Legacy, nil, []string{discovers, initializes, initialized}, []string{initializes, initialized}},
		{era.Legacy, []era.Era{era.Legacy}, []string{initializes, initialized}, []string{initializes, initialized}},
		{era.Modern, []era.Era{era.Legacy}, []string{initializes}, []string{initializes}},
		{era.Legacy, []era.Era{era.Modern}, []string{discovers}, []string{discovers}},
	} {
		stub := newStub(t, c.era, nil)
		u := reach(t, stub.URL, func(o *upstream.HTTPOptions) { o.Eras = c.allowed })
		for i, want := range [][]string{c.first, c.second} {
			s, err := u.Open(t.Context(), upstream.Client{})
			if ok := c.allowed == nil || c.allowed[0] == c.era; ok != (err == nil) || ok && s.Era() != c.era {
				t.Errorf("a server of the %s era with %v allowed: %v", c.era, c.allowed, err)
			}
			if got := methods(stub.received()); !slices.Equal(got, want) {
				t.Errorf("a server of the %s era with %v allowed got %q at opening %d, should get %q", c.era, c.allowed, got, i, want)
			}
		}
	}
}

// What a client says of itself, and a server refuses, changes nothing for other clients.
func TestEraIsOfNoClient(t *testing.T) {
	odd, good := upstream.Client{Info: jsontext.Value(`{"name":"c","version":"1","icons":5}`)}, upstream.Client{Info: jsontext.Value(`{"name":"c","version":"1"}`)}
	for _, c := range []struct {
		era                  era.Era
		unknown, known, none []string // what comes for the odd client while the era is not known, then once it is, and for others
	}{
		{era.Modern, []string{discovers, discovers}, []string{discovers, discovers}, []string{discovers}},
		{era.Legacy, []string{discovers, discovers, initializes, initializes, initialized, ends}, []string{initializes, initializes, initialized, ends}, []string{initializes, initialized}},
	} {
		stub := newStub(t, c.era, nil, func(s *stub) { s.strict = true })
		u := reach(t, stub.URL)
		for _, one := range []struct {
			client upstream.Client
			want   []string
		}{{odd, c.unknown}, {odd, c.known}, {good, c.none}, {odd, c.known}, {good, c.none}} {
			s, err := u.Open(t.Context(), one.client)
			if ok := !strings.Contains(string(one.client.Info), "icons"); ok != (err == nil) || ok && s.Era() != c.era {
				t.Errorf("a server of the %s era for %s: %v", c.era, one.client.Info, err)
			}
			if got := methods(stub.received()); !slices.Equal(got, one.want) {
				t.Errorf("a server of the %s era got %q for %s, should get %q", c.era, got, one.client.Info, one.want)
			}
		}
	}
}

// However many sessions begin at once, one finds out the era.
func TestEraIsFoundOutOnce(t *testing.T) {
	stub := newStub(t, era.Legacy, nil)
	u := reach(t, stub.URL)
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if _, err := u.Open(t.Context(), upstream.Client{}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	count := map[string]int{}
	for _, m := range methods(stub.received()) {
		count[m]++
	}
	if count[discovers] != 1 || count[initializes] != 20 {
		t.Errorf("the server got %v", count)
	}
}

// Where there is nothing to find out, a session that a server lets wait is in no other's way.
func TestOneEraIsNotFoundOut(t *testing.T) {
	var both sync.WaitGroup
	both.Add(2)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		both.Done()
		both.Wait()
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer server.Close()
	u := reach(t, server.URL, func(o *upstream.HTTPOptions) { o.Eras, o.Timeout = []era.Era{era.Legacy}, 20*time.Second })
	failed := make(chan error)
	for range 2 {
		go func() {
			_, err := u.Open(t.Context(), upstream.Client{})
			failed <- err
		}()
	}
	for range 2 {
		if err := <-failed; err == nil || !strings.Contains(err.Error(), "503") {
			t.Errorf("opened: %v", err)
		}
	}
}

// A server that was replaced by one of the other era loses its sessions, and is asked anew.
func TestEraChanges(t *testing.T) {
	for _, c := range []struct {
		before, after era.Era
		answer        string
		want          string
	}{
		{era.Legacy, era.Modern, `{"jsonrpc":"2.0","id":ID,"error":{"code":-32020,"message":"no Mcp-Method"}}`, "not sent true, gone true"},
		{era.Modern, era.Legacy, `{"jsonrpc":"2.0","id":null,"error":{"code":-32022,"message":"no"}}`, "not sent true, gone true"},
		{era.Modern, era.Legacy, `Bad Request: no session`, "not sent false, gone true"},
	} {
		var now atomic.Pointer[stub]
		now.Store(newStub(t, c.before, nil))
		h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { now.Load().ServeHTTP(w, r) }))
		t.Cleanup(h.Close)
		u := reach(t, h.URL)
		s := open(t, u)
		now.Store(newStub(t, c.after, says(400, jsonKind, c.answer)))
		if _, _, err := send(s, call(s, "x", `{}`)); !strings.HasPrefix(describe(err), c.want) {
			t.Errorf("a request to a server that is %s now: %s", c.after, describe(err))
		}
		if s = open(t, u); s.Era() != c.after {
			t.Errorf("a server that is %s now is taken for %s", c.after, s.Era())
		}
	}
}

func TestHandshakesThatFail(t *testing.T) {
	for _, c := range []struct {
		name   string
		server func(http.ResponseWriter, *http.Request, string)
		tries  int32
		want   string
	}{
		{"401", says(401, "", ""), 1, "answers server/discover with 401"},
		{"503", says(503, "", ""), 1, "answers server/discover with 503"},
		{"302", says(302, "", ""), 1, "answers server/discover with 302"},
		{"404", says(404, "", ""), 2, "answers initialize with 404"},
		{"500", says(500, "", ""), 2, "answers initialize with 500"},
		{"silence", silent, 1, "nothing came in time"},
		{"given up in silence", silent, 1, "nobody waits any more"},
		{"a modern error", says(200, jsonKind, `{"jsonrpc":"2.0","id":ID,"error":{"code":-32021,"message":"no"}}`), 1, "of the modern era, and refuses"},
		{"errors alone", says(400, jsonKind, nobodys), 2, "refuses initialize"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, giveUp := context.WithCancelCause(t.Context())
			defer giveUp(nil)
			var tries atomic.Int32
			h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				tries.Add(1)
				_, _ = io.ReadAll(r.Body)
				if c.name == "given up in silence" {
					giveUp(errors.New("nobody waits any more"))
				}
				c.server(w, r, "1")
			}))
			defer h.Close()
			u := reach(t, h.URL, func(o *upstream.HTTPOptions) {
				if c.name == "silence" {
					o.Timeout = 200 * time.Millisecond
				}
			})
			_, err := u.Open(ctx, upstream.Client{})
			var e *upstream.Error
			if !errors.As(err, &e) || !e.NotSent || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s", describe(err))
			}
			early := c.name == "silence" && tries.Load() == 0 // it may be given up before the server knows of it
			if n := tries.Load(); n != c.tries && !early {
				t.Errorf("the server was asked %d times, not %d", n, c.tries)
			}
		})
	}
}

func TestLegacyHandshake(t *testing.T) {
	for _, c := range []struct{ session, version, want string }{
		{"s", "2025-11-25", ""},
		{"", "2025-11-25", ""},
		{"s", "2024-11-05", ""},
		{"s", "2099-01-01", "a version of the protocol that we do not speak"},
		{"s", "2026-07-28", "a version of the protocol that we do not speak"},
		{"a b", "2025-11-25", "cannot stand in a header"},
		{strings.Repeat("x", 5000), "2025-11-25", "cannot stand in a header"},
	} {
		stub := newStub(t, era.Legacy, says(200, jsonKind, good), func(s *stub) { s.session, s.version = c.session, c.version })
		u := reach(t, stub.URL, func(o *upstream.HTTPOptions) { o.Eras = []era.Era{era.Legacy} })
		s, err := u.Open(t.Context(), upstream.Client{})
		if c.want != "" {
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%.10q %s: %v", c.session, c.version, err)
			}
			continue
		}
		mcptest.Must(t, err)
		if _, _, err := send(s, call(s, "x", `{}`)); err != nil {
			t.Error(err)
		}
		_ = u.Close()
		later := stub.received()[1:]
		for _, r := range later {
			if r.header.Get("Mcp-Protocol-Version") != c.version || r.header.Get("Mcp-Session-Id") != c.session {
				t.Errorf("%q %s: a later request has %v", c.session, c.version, r.header)
			}
		}
		if want := map[bool]int{true: 3, false: 2}[c.session != ""]; len(later) != want { // DELETE only with a session
			t.Errorf("%q: %d later requests", c.session, len(later))
		}
	}
}

// Answers of a server of the legacy era, and whether its session is lost.
func TestLostSessions(t *testing.T) {
	for _, c := range []struct {
		status int
		body   string
		want   string
	}{
		{404, "404 page not found", "not sent true, gone true, answer null"},
		{404, `{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session not found"}}`, `not sent true, gone true, answer {"code":-32001`},
		{404, `{"jsonrpc":"2.0","id":ID,"error":{"code":-32001,"message":"Session not found"}}`, `not sent true, gone true, answer {"code":-32001`},
		{404, `{"jsonrpc":"2.0","id":ID,"error":{"code":-32601,"message":"no"}}`, "<nil>"},
		{400, `{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"no session"}}`, `not sent false, gone true, answer {"code":-32000`},
		{400, `{"jsonrpc":"2.0","id":null,"error":{"code":-32602,"message":"no"}}`, "<nil>"},
		{400, `{"jsonrpc":"2.0","id":ID,"error":{"code":-32000,"message":"no"}}`, "<nil>"},
		{400, "no", "not sent false, gone false, answer null"},
		{500, "no", "not sent false, gone false, answer null"},
	} {
		stub := newStub(t, era.Legacy, says(c.status, jsonKind, c.body))
		s := open(t, reach(t, stub.URL))
		if _, _, err := send(s, call(s, "x", `{}`)); !strings.HasPrefix(describe(err), c.want) {
			t.Errorf("%d %s: %s", c.status, c.body, describe(err))
		}
	}
}

func TestNotify(t *testing.T) {
	stub := newStub(t, era.Legacy, nil)
	s := open(t, reach(t, stub.URL))
	_ = stub.received()
	mcptest.Must(t, s.Notify(t.Context(), rpc.Answer(rpc.StringID("q"), jsontext.Value(`{"action": "accept"}`))))
	if got := stub.received(); len(got) != 1 || got[0].body != `{"jsonrpc":"2.0","id":"q","result":{"action": "accept"}}` {
		t.Errorf("the server got %v", got)
	}
	s = open(t, reach(t, newStub(t, era.Modern, nil).URL))
	var e *upstream.Error
	if err := s.Notify(t.Context(), rpc.Message{Method: "notifications/roots/list_changed"}); !errors.As(err, &e) || !e.NotSent {
		t.Errorf("a notification in the modern era: %v", err)
	}
}

func TestListenLegacy(t *testing.T) {
	for _, c := range []struct {
		status       int
		kind, stream string
		want         string
	}{
		{405, "", "", "EOF"},
		{404, "", "", "not sent true, gone true"},
		{500, "", "", "not sent false, gone false"},
		{200, jsonKind, "{}", "not sent false, gone false"},
		{200, eventKind, "", "EOF"},
		{200, eventKind, event(good) + event(bad) + event(`{`) + event(nobodys), "EOF"},
		{200, eventKind, event(foreign) + event(note) + event(question), "notifications/message elicitation/create EOF"},
	} {
		s := open(t, reach(t, newStub(t, era.Legacy, says(c.status, c.kind, c.stream)).URL))
		if got := heard(t.Context(), s); !strings.HasPrefix(got, c.want) {
			t.Errorf("%d %s: %s", c.status, c.kind, got)
		}
	}
	if got := heard(t.Context(), open(t, reach(t, newStub(t, era.Modern, nil).URL))); got != "EOF" {
		t.Errorf("a server of the modern era says beside answers: %s", got)
	}
}

// heard are the messages of a session beside answers.
func heard(ctx context.Context, s upstream.Session) string {
	st, err := s.Listen(ctx)
	if err != nil {
		return describe(err)
	}
	defer st.Close()
	var all []string
	for {
		m, err := st.Next()
		if err != nil {
			return strings.Join(append(all, err.Error()), " ")
		}
		all = append(all, m.Method)
	}
}

// TestServerThatForgets: a server of both eras that keeps no sessions in the legacy one is spoken to in the modern one with all
// clients. Of one of the legacy era alone the log says once what it cannot do.
func TestServerThatForgets(t *testing.T) {
	s := sdk.NewServer(&sdk.Implementation{Name: "forgets", Version: "1"}, nil)
	web := httptest.NewServer(sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s }, &sdk.StreamableHTTPOptions{Stateless: true}))
	t.Cleanup(web.Close)
	for _, c := range []struct {
		url   string
		eras  []era.Era
		era   era.Era
		lines int
	}{
		{web.URL, nil, era.Modern, 0},
		{mcptest.OnlyLegacy(t, web.URL), nil, era.Legacy, 1},
		{mcptest.OnlyModern(t, web.URL), nil, era.Modern, 0},
		{web.URL, []era.Era{era.Legacy}, era.Legacy, 1},
	} {
		var log bytes.Buffer
		u := reach(t, c.url, func(o *upstream.HTTPOptions) {
			o.Eras, o.Logger = c.eras, slog.New(slog.NewTextHandler(&log, nil))
		})
		for n, legacy := range []bool{true, false, true, true} {
			session, err := u.Open(t.Context(), upstream.Client{Legacy: legacy})
			if err != nil || session.Era() != c.era {
				t.Fatalf("%s %v, client %d: %v", c.url, c.eras, n, err)
			}
		}
		if got := strings.Count(log.String(), "keeps no sessions"); got != c.lines {
			t.Errorf("%v: %d lines: %s", c.eras, got, log.String())
		}
	}
}
