package upstream_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/internal/mcp/internal/era"
	"policy-service/pdp/internal/mcp/internal/upstream"
	"policy-service/pdp/internal/rpc"
	"policy-service/pdp/pdptest/mcptest"
)

// here is where servers of tests stand.
var here = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}

// httpOptions are those of a server on loopback, without limits that a test would meet.
func httpOptions(url string) upstream.HTTPOptions {
	return upstream.HTTPOptions{URL: url, AllowNetworks: here, Options: options("gateway", "1")}
}

// options are those of any server, without limits that a test would meet.
func options(name, version string) upstream.Options {
	return upstream.Options{
		Name: name, Version: version, Timeout: time.Minute, MaxResult: 4 << 20,
		Logger: slog.New(slog.DiscardHandler), Dropped: func(string) {}, Masked: func(int) {},
	}
}

// reach makes an upstream of a server that listens on loopback.
func reach(t testing.TB, url string, change ...func(*upstream.HTTPOptions)) upstream.Upstream {
	t.Helper()
	o := httpOptions(url)
	for _, c := range change {
		c(&o)
	}
	u, err := upstream.NewHTTP(o)
	mcptest.Must(t, err)
	t.Cleanup(func() { _ = u.Close() })
	return u
}

func open(t testing.TB, u upstream.Upstream) upstream.Session {
	t.Helper()
	s, err := u.Open(t.Context(), upstream.Client{Principal: "alice"})
	mcptest.Must(t, err)
	return s
}

// begin sends a request.
func begin(t testing.TB, s upstream.Session, r upstream.Request) upstream.Stream {
	t.Helper()
	st, err := s.Send(t.Context(), r)
	mcptest.Must(t, err)
	return st
}

func listen(t testing.TB, s upstream.Session) upstream.Stream {
	t.Helper()
	st, err := s.Listen(t.Context())
	mcptest.Must(t, err)
	return st
}

// call is a tools/call as the era of the session wants it.
func call(s upstream.Session, tool, arguments string) upstream.Request {
	params := rpc.Object{}.With("name", rpc.String(tool)).With("arguments", jsontext.Value(arguments))
	return upstream.Request{Method: "tools/call", Params: withMeta(s, params)}
}

func withMeta(s upstream.Session, params rpc.Object) rpc.Object {
	if s.Era() == era.Legacy {
		return params
	}
	meta := rpc.Object{}.With(era.MetaVersion, rpc.String("2026-07-28")).With(era.MetaClient, jsontext.Value(`{"name":"c","version":"1"}`)).
		With(era.MetaCapabilities, jsontext.Value(`{"elicitation":{}}`))
	return params.With("_meta", meta.Value())
}

// members are those of an object.
func members(text string) rpc.Object {
	o, err := rpc.ParseObject(jsontext.Value(text))
	if err != nil {
		panic(err)
	}
	return o
}

// answer reads a stream to its response; before are the messages in front of it.
func answer(st upstream.Stream) (before []rpc.Message, m rpc.Message, err error) {
	for {
		m, err := st.Next()
		if err != nil {
			return before, m, err
		}
		if m.IsResponse() {
			return before, m, nil
		}
		before = append(before, m)
	}
}

func send(s upstream.Session, r upstream.Request) (before []rpc.Message, m rpc.Message, err error) {
	st, err := s.Send(context.Background(), r)
	if err != nil {
		return nil, rpc.Message{}, err
	}
	defer st.Close()
	return answer(st)
}

func isGone(err error, notSent bool) bool {
	var e *upstream.Error
	return errors.As(err, &e) && e.Gone && e.NotSent == notSent
}

func describe(err error) string {
	var e *upstream.Error
	if !errors.As(err, &e) {
		return fmt.Sprint(err)
	}
	return fmt.Sprintf("not sent %t, gone %t, answer %s: %s", e.NotSent, e.Gone, e.Answer, e)
}

// showing are credentials that say whose token they were shown, and try to have requests repeated.
type showing struct{ fail error }

func (c showing) Authorize(_ context.Context, h http.Header, by upstream.Client) error {
	h.Set("Authorization", "Bearer for "+by.Principal+" by "+by.Token+fmt.Sprint(by.Expires.Unix()))
	h.Set("Idempotency-Key", "1")
	h.Set("Accept", "text/html")
	return c.fail
}

// A server sees the headers that are named here, and no others.
func TestHeaders(t *testing.T) {
	client := upstream.Client{Principal: "alice", Token: "t1-", Expires: time.Unix(1, 0)}
	extra := http.Header{"mcp-param-region": {"eu"}, "Mcp-Param-City": {"=?base64?xIc=?="}, "Cookie": {"a=b"}, "Authorization": {"Bearer client"}, "Mcp-Session-Id": {"other"}}
	for _, c := range []struct {
		era  era.Era
		want map[string]string
	}{
		{era.Modern, map[string]string{
			"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "=?base64?xbw=?=", "Mcp-Param-Region": "eu", "Mcp-Param-City": "=?base64?xIc=?=",
		}},
		{era.Legacy, map[string]string{"Mcp-Protocol-Version": "2025-06-18", "Mcp-Session-Id": "session-1"}},
	} {
		stub := newStub(t, c.era, says(200, jsonKind, good))
		s, err := reach(t, stub.URL, func(o *upstream.HTTPOptions) { o.Credentials = showing{} }).Open(t.Context(), client)
		mcptest.Must(t, err)
		for _, r := range stub.received() {
			if r.header.Get("Authorization") != "Bearer for alice by t1-1" {
				t.Errorf("a handshake has %v", r.header)
			}
		}
		r := call(s, "ż", `{}`)
		r.Headers, r.Token, r.Expires = extra, "t2-", time.Unix(2, 0)
		if _, _, err := send(s, r); err != nil {
			t.Fatal(err)
		}
		c.want["Accept"], c.want["Content-Type"], c.want["User-Agent"] = jsonKind+", "+eventKind, jsonKind, "gateway/1"
		c.want["Authorization"] = "Bearer for alice by t2-2"
		got := map[string]string{}
		for name, values := range stub.received()[0].header {
			got[name] = strings.Join(values, "|")
		}
		delete(got, "Content-Length")
		if !maps.Equal(got, c.want) {
			t.Errorf("a request of the %s era has\n%v, should have\n%v", c.era, got, c.want)
		}
		s.Close()
		for _, r := range stub.received() {
			if r.header.Get("Authorization") != "Bearer for alice by t2-2" {
				t.Errorf("a %s at the end has %v", r.http, r.header)
			}
		}
	}
}

func TestMirrors(t *testing.T) {
	stub := newStub(t, era.Modern, says(200, jsonKind, good))
	s := open(t, reach(t, stub.URL))
	for _, c := range []struct{ method, params, want string }{
		{"tools/call", `{"arguments":{"name":"wrong"},"name":"right"}`, "right"},
		{"tools/call", `{"n\u0061me":"escaped"}`, "escaped"},
		{"prompts/get", `{"name":"a b"}`, "a b"},
		{"prompts/get", `{"name":" a"}`, "=?base64?IGE=?="},
		{"resources/read", `{"name":"no","uri":"file:///x\u000a"}`, "=?base64?ZmlsZTovLy94Cg==?="},
		{"tools/call", `{"name":"=?base64?YQ==?="}`, "=?base64?PT9iYXNlNjQ/WVE9PT89?="},
		{"tools/call", `{"name":7}`, ""},
		{"tools/list", `{"name":"no"}`, ""},
	} {
		_ = stub.received()
		_, _, err := send(s, upstream.Request{Method: c.method, Params: members(c.params)})
		got := stub.received()
		if err != nil || len(got) != 1 || got[0].header.Get("Mcp-Name") != c.want || got[0].header.Get("Mcp-Method") != c.method {
			t.Errorf("%s %s: %v, error %v", c.method, c.params, got, err)
		}
		if len(got) == 1 && !strings.HasSuffix(got[0].body, `,"method":"`+c.method+`","params":`+c.params+"}") {
			t.Errorf("the server got %s", got[0].body)
		}
	}
}

func TestNoCredentials(t *testing.T) {
	stub := newStub(t, era.Modern, says(200, jsonKind, good))
	_, err := reach(t, stub.URL, func(o *upstream.HTTPOptions) { o.Credentials = showing{errors.New("no key")} }).Open(t.Context(), upstream.Client{})
	if !strings.HasPrefix(describe(err), "not sent true, gone false") || len(stub.received()) != 0 {
		t.Errorf("%s", describe(err))
	}
}

// breaking is a server that counts which calls it has got, and breaks connections at all places.
type breaking struct {
	mu       sync.Mutex
	executed map[string]int
}

func (b *breaking) answer(w http.ResponseWriter, r *http.Request, id string) {
	b.mu.Lock()
	b.executed[id]++
	n := len(b.executed)
	b.mu.Unlock()
	text := strings.ReplaceAll(good, "ID", id)
	head := fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", len(text))
	piece := map[int]string{1: "", 2: head[:20], 3: head + text[:5], 4: head + text}[n%6]
	if n%6 == 0 || n%6 == 5 {
		_, _ = io.WriteString(w, text)
		return
	}
	hangUp(w, piece)
}

// hangUp writes a text in place of an answer, and ends the connection.
func hangUp(w http.ResponseWriter, text string) {
	c, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	_, _ = io.WriteString(c, text)
	_ = c.Close()
}

// Nothing that a server may have got is sent again; the error of any other request says so. A connection that dies behind a
// whole answer, before the next request, costs nothing, or at most an error.
func TestNothingTwice(t *testing.T) {
	b := &breaking{executed: map[string]int{}}
	s := open(t, reach(t, newStub(t, era.Modern, b.answer).URL, func(o *upstream.HTTPOptions) { o.Credentials = showing{} }))
	went, failed := 0, 0
	for n := range 600 {
		_, m, err := send(s, call(s, "x", `{}`))
		id := fmt.Sprint(n + 2) // 1 was server/discover
		b.mu.Lock()
		executed := b.executed[id]
		b.mu.Unlock()
		var e *upstream.Error
		switch {
		case err == nil && m.Result != nil && executed == 1:
			went++
		case errors.As(err, &e) && !e.Gone && executed == 1 && !e.NotSent, errors.As(err, &e) && executed == 0:
			failed++
		default:
			t.Errorf("call %s was executed %d times, and ends with %s", id, executed, describe(err))
		}
	}
	if went < 250 || failed < 250 {
		t.Errorf("%d calls went well, and %d failed", went, failed)
	}
}

func TestNotSent(t *testing.T) {
	stub := newStub(t, era.Modern, says(200, jsonKind, good))
	stub.Config.SetKeepAlivesEnabled(false) // the death of an idle connection may be noticed too late
	s := open(t, reach(t, stub.URL))
	stub.Close()
	_, _, err := send(s, call(s, "x", `{}`))
	if !strings.HasPrefix(describe(err), "not sent true, gone false") {
		t.Errorf("a server that does not listen: %s", describe(err))
	}
}

// Errors of net/http quote the server. Ours do not.
func TestErrorsQuoteNothing(t *testing.T) {
	for _, answer := range []string{
		"secret", "HTTP/1.1 secret\r\n\r\n", "HTTP/1.1 200 OK\r\nsecret\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: secret\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: secret\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nsecret\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nsecret",
		"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("secret", 20_000) + "\r\n\r\n",
		"HTTP/1.1 101 Switching Protocols\r\nUpgrade: secret\r\n\r\n",
		"HTTP/1.1 400 secret\r\nContent-Length: 6\r\n\r\nsecret",
	} {
		s := open(t, reach(t, newStub(t, era.Modern, func(w http.ResponseWriter, _ *http.Request, _ string) { hangUp(w, answer) }).URL))
		if _, _, err := send(s, call(s, "x", `{}`)); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%.60q: %v", answer, err)
		}
	}
}

func TestClosedSessionEndsStreams(t *testing.T) {
	for _, e := range []era.Era{era.Modern, era.Legacy} {
		began := make(chan struct{}, 1)
		stub := newStub(t, e, func(w http.ResponseWriter, r *http.Request, _ string) {
			w.Header().Set("Content-Type", eventKind)
			_, _ = io.WriteString(w, event(note))
			_ = http.NewResponseController(w).Flush()
			began <- struct{}{}
			<-r.Context().Done()
		})
		s := open(t, reach(t, stub.URL))
		st := begin(t, s, call(s, "x", `{}`))
		<-began
		if m, err := st.Next(); err != nil || m.Method != "notifications/message" {
			t.Error(err)
		}
		s.Close()
		if _, err := st.Next(); err == nil || err == io.EOF {
			t.Errorf("a stream of a closed session ends with %v", err)
		}
		st.Close()
		if got := methods(stub.received()); slices.Contains(got, "POST notifications/cancelled") || slices.Contains(got, ends) != (e == era.Legacy) {
			t.Errorf("the server got %q", got)
		}
	}
}

// A request that is given up before its response is reported to the server, in the way of its era. TestEras of mcp has servers of
// the SDK, and programs.
func TestGivenUp(t *testing.T) {
	const early = "context, before the answer"
	for _, e := range []era.Era{era.Modern, era.Legacy} {
		for _, how := range []string{"Close", "context", early} {
			t.Run(e.String()+", "+how, func(t *testing.T) {
				hangs, gone := make(chan struct{}), make(chan struct{})
				stub := newStub(t, e, func(w http.ResponseWriter, r *http.Request, _ string) {
					if how != early {
						w.Header().Set("Content-Type", eventKind)
						_ = http.NewResponseController(w).Flush()
					}
					close(hangs)
					<-r.Context().Done()
					close(gone)
				})
				s := open(t, reach(t, stub.URL))
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				go func() {
					if <-hangs; how != "Close" {
						cancel()
					}
				}()
				st, err := s.Send(ctx, call(s, "x", `{}`))
				if how == "Close" {
					st.Close()
				}
				for err == nil {
					_, err = st.Next()
				}
				if st != nil { // the answer may have begun before the context was over
					st.Close()
				}
				if how != "Close" && !errors.Is(err, context.Canceled) {
					t.Errorf("it ends with %v", err)
				}
				<-gone
				if e == era.Legacy {
					mcptest.Until(t, "the server is notified", func() bool {
						return slices.Contains(methods(stub.received()), "POST notifications/cancelled")
					})
				}
				cancel()
				if _, err := s.Send(ctx, call(s, "x", `{}`)); !errors.Is(err, context.Canceled) || !strings.HasPrefix(describe(err), "not sent true") {
					t.Errorf("another request of a client that has gone: %s", describe(err))
				}
			})
		}
	}
}

func TestSessionsEnd(t *testing.T) {
	stub := newStub(t, era.Legacy, says(200, jsonKind, good))
	u := reach(t, stub.URL)
	one := open(t, u)
	stub.session = "session-2"
	two := open(t, u)
	one.Close()
	if _, _, err := send(one, call(one, "x", `{}`)); !isGone(err, true) {
		t.Errorf("a request in an ended session: %v", err)
	}
	if _, m, err := send(two, call(two, "x", `{}`)); err != nil || m.Result == nil {
		t.Errorf("the other session: %v", err)
	}
	if err := u.Close(); err != nil {
		t.Error(err)
	}
	var ended []string
	for _, r := range stub.received() {
		if r.http == ends {
			ended = append(ended, r.header.Get("Mcp-Session-Id"))
		}
	}
	if !slices.Equal(ended, []string{"session-1", "session-2"}) {
		t.Errorf("ended were %q", ended)
	}
	if _, err := u.Open(t.Context(), upstream.Client{}); !isGone(err, true) {
		t.Errorf("a session of a closed upstream: %v", err)
	}
}

// Whatever becomes of calls, nothing of them stays.
func TestNothingStays(t *testing.T) {
	fds := func() int {
		names, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip("this system has no /proc")
		}
		return len(names)
	}
	goroutines, files := runtime.NumGoroutine(), fds()
	for _, e := range []era.Era{era.Modern, era.Legacy} {
		stub := newStub(t, e, func(w http.ResponseWriter, r *http.Request, id string) {
			w.Header().Set("Content-Type", eventKind)
			switch ("x" + id)[len(id)] {
			case '0', '1':
				says(200, jsonKind, good)(w, r, id)
			case '2', '3':
				_, _ = io.WriteString(w, strings.ReplaceAll(event(note)+event(good)+event(note), "ID", id))
			case '4':
				w.WriteHeader(500)
			case '5':
				<-r.Context().Done()
			default:
				_, _ = io.WriteString(w, event(note))
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
			}
		})
		u := reach(t, stub.URL)
		var all sync.WaitGroup
		var sessions []upstream.Session // opened before connections are given up so fast that a busy machine may not take a new one
		for range 10 {
			sessions = append(sessions, open(t, u))
		}
		for _, s := range sessions {
			all.Go(func() {
				for n := range 100 {
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(n%10)*time.Millisecond+5*time.Millisecond)
					if st, err := s.Send(ctx, call(s, "x", `{}`)); err == nil {
						if n%3 > 0 {
							_, _ = st.Next()
						}
						if n%2 > 0 {
							cancel()
						}
						st.Close()
						if _, err := st.Next(); err == nil {
							t.Error("a message after Close")
						}
					}
					cancel()
				}
				if st, err := s.Listen(t.Context()); err == nil {
					st.Close()
				}
			})
		}
		all.Wait()
		_ = u.Close()
		stub.Close()
	}
	mcptest.Until(t, "no goroutine and no descriptor stayed", func() bool { return runtime.NumGoroutine() <= goroutines && fds() <= files })
}

// A session that is over is held by nothing.
func TestSessionsAreForgotten(t *testing.T) {
	u := reach(t, newStub(t, era.Legacy, says(200, jsonKind, good)).URL)
	freed := make(chan struct{})
	func() {
		s := open(t, u)
		if _, _, err := send(s, call(s, "x", `{}`)); err != nil {
			t.Error(err)
		}
		runtime.SetFinalizer(s, func(upstream.Session) { close(freed) })
		s.Close()
	}()
	for end := time.Now().Add(time.Minute); ; runtime.GC() {
		select {
		case <-freed:
			return
		default:
		}
		if time.Now().After(end) {
			t.Fatal("a closed session is still held")
		}
	}
}

func BenchmarkCall(b *testing.B) {
	for kind, text := range map[string]string{jsonKind: good, eventKind: event(good)} {
		b.Run(kind, func(b *testing.B) {
			h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				_, id, _ := strings.Cut(string(body), `"id":`)
				id, _, _ = strings.Cut(id, ",")
				if strings.Contains(string(body), "server/discover") {
					says(200, jsonKind, `{"jsonrpc":"2.0","id":ID,"result":{"supportedVersions":["2026-07-28"]}}`)(w, r, id)
					return
				}
				says(200, kind, text)(w, r, id)
			}))
			defer h.Close()
			s := open(b, reach(b, h.URL))
			r := call(s, "x", `{"text":"`+strings.Repeat("x", 1000)+`"}`)
			b.ReportAllocs()
			for b.Loop() {
				if _, m, err := send(s, r); err != nil || m.Result == nil {
					b.Fatal(err)
				}
			}
		})
	}
}
