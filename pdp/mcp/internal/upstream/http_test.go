package upstream_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/rpc"
	"policy-service/pdp/mcp/internal/upstream"
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
		Name: name, Version: version, Timeout: 20 * time.Second, MaxResult: 4 << 20,
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
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = u.Close() })
	return u
}

func open(t testing.TB, u upstream.Upstream) upstream.Session {
	t.Helper()
	s, err := u.Open(t.Context(), upstream.Client{Principal: "alice"})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// call is a tools/call as the era of the session wants it.
func call(s upstream.Session, tool, arguments string) upstream.Request {
	params := rpc.Object{}.With("name", rpc.String(tool)).With("arguments", jsontext.Value(arguments))
	return upstream.Request{Method: "tools/call", Params: withMeta(s, params, rpc.Object{})}
}

func withMeta(s upstream.Session, params, meta rpc.Object) rpc.Object {
	if s.Era() == era.Modern {
		meta = meta.With(era.MetaVersion, rpc.String("2026-07-28")).With(era.MetaClient, jsontext.Value(`{"name":"c","version":"1"}`)).
			With(era.MetaCapabilities, jsontext.Value(`{"elicitation":{}}`))
	}
	if meta.Len() > 0 {
		params = params.With("_meta", meta.Value())
	}
	return params
}

// members are those of an object.
func members(text string) rpc.Object {
	o, err := rpc.ParseObject(jsontext.Value(text))
	if err != nil {
		panic(err)
	}
	return o
}

// answer reads a stream to its response, and what came before it.
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

// sdk is a server made with the SDK. Cancelled gets a value when a call of hang was cancelled.
type sdk struct {
	url       string
	server    *mcp.Server
	hanging   chan struct{}
	cancelled chan struct{}
	ended     chan string
}

func newSDK(t testing.TB, stateless, asJSON bool) *sdk {
	t.Helper()
	server := mcp.NewServer(&mcp.Implementation{Name: "partner", Version: "1"}, nil)
	s := &sdk{server: server, hanging: make(chan struct{}, 10), cancelled: make(chan struct{}, 10), ended: make(chan string, 10)}
	server.AddTool(&mcp.Tool{Name: "echo", InputSchema: jsontext.Value(`{"type":"object"}`)}, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(r.Params.Arguments)}}}, nil
	})
	mcp.AddTool(server, &mcp.Tool{Name: "progress"}, func(ctx context.Context, r *mcp.CallToolRequest, _ map[string]any) (*mcp.CallToolResult, any, error) {
		for i := range 3 {
			p := &mcp.ProgressNotificationParams{ProgressToken: r.Params.GetProgressToken(), Progress: float64(i)}
			if err := r.Session.NotifyProgress(ctx, p); err != nil {
				return nil, nil, err
			}
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "done"}}}, nil, nil
	})
	mcp.AddTool(server, &mcp.Tool{Name: "form"}, func(ctx context.Context, r *mcp.CallToolRequest, _ map[string]any) (*mcp.CallToolResult, any, error) {
		a, err := r.Session.Elicit(ctx, &mcp.ElicitParams{Message: "sure?"})
		if err != nil {
			return nil, nil, err
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: a.Action}}}, nil, nil
	})
	mcp.AddTool(server, &mcp.Tool{Name: "hang"}, func(ctx context.Context, r *mcp.CallToolRequest, _ map[string]any) (*mcp.CallToolResult, any, error) {
		if !asJSON { // so that the answer begins
			_ = r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: "t"})
		}
		s.hanging <- struct{}{}
		<-ctx.Done()
		s.cancelled <- struct{}{}
		return nil, nil, ctx.Err()
	})
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server },
		&mcp.StreamableHTTPOptions{Stateless: stateless, JSONResponse: asJSON, PropagateRequestCancellation: true})
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handler.ServeHTTP(w, r)
		if r.Method == http.MethodDelete {
			s.ended <- r.Header.Get("Mcp-Session-Id")
		}
	}))
	t.Cleanup(h.Close)
	s.url = h.URL
	return s
}

// partners are servers of the SDK, with the era that they should be spoken with.
var partners = []struct {
	name              string
	stateless, asJSON bool
	era               era.Era
}{
	{"stateful, events", false, false, era.Legacy},
	{"stateful, JSON", false, true, era.Legacy},
	{"stateless, events", true, false, era.Modern},
	{"stateless, JSON", true, true, era.Modern},
}

func TestPartners(t *testing.T) {
	for _, p := range partners {
		t.Run(p.name, func(t *testing.T) {
			s := open(t, reach(t, newSDK(t, p.stateless, p.asJSON).url))
			if s.Era() != p.era {
				t.Fatalf("the era is %s", s.Era())
			}
			if !strings.Contains(string(s.Server()), `"name":"partner"`) {
				t.Errorf("the server said of itself %s", s.Server())
			}
			const arguments = `{"amount":9007199254740993,"text":"zażółć"}`
			_, m, err := send(s, call(s, "echo", arguments))
			if err != nil || !strings.Contains(string(m.Result), string(rpc.String(arguments))) {
				t.Errorf("echo: %s %v", m.Append(nil), err)
			}
			if _, m, err = send(s, call(s, "nobody knows ż it", `{}`)); err != nil || m.Error == nil || !m.ID.IsZero() {
				t.Errorf("an unknown tool: %s %v", m.Append(nil), err)
			}
			_, m, err = send(s, upstream.Request{Method: "no/method", Params: withMeta(s, rpc.Object{}, rpc.Object{})})
			if p.era == era.Modern && (err != nil || !strings.Contains(string(m.Error), "-32601")) {
				t.Errorf("an unknown method: %s %v", m.Append(nil), err)
			}
			if p.era == era.Legacy && describe(err) != "not sent false, gone false, answer null: the upstream answers with status 400" {
				t.Errorf("an unknown method: %s", describe(err))
			}
		})
	}
}

func TestProgress(t *testing.T) {
	for _, p := range partners {
		if p.asJSON {
			continue // it has no place for them
		}
		t.Run(p.name, func(t *testing.T) {
			s := open(t, reach(t, newSDK(t, p.stateless, p.asJSON).url))
			r := call(s, "progress", `{}`)
			r.Params = withMeta(s, rpc.Object{}.With("name", rpc.String("progress")).With("arguments", jsontext.Value(`{}`)),
				rpc.Object{}.With("progressToken", jsontext.Value("7")))
			before, m, err := send(s, r)
			if err != nil || m.Result == nil {
				t.Fatalf("%s %v", m.Append(nil), err)
			}
			if len(before) != 3 || before[2].Method != "notifications/progress" || !strings.Contains(string(before[2].Params), `"progress":2`) {
				t.Errorf("progress came %d times", len(before))
			}
		})
	}
}

func TestRequestOfServer(t *testing.T) {
	u := reach(t, newSDK(t, false, false).url)
	s, err := u.Open(t.Context(), upstream.Client{Capabilities: jsontext.Value(`{"elicitation":{}}`)})
	if err != nil {
		t.Fatal(err)
	}
	st, err := s.Send(t.Context(), call(s, "form", `{}`))
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	m, err := st.Next()
	if err != nil || m.Method != "elicitation/create" || !m.IsRequest() {
		t.Fatalf("the server asks %s %v", m.Append(nil), err)
	}
	if err := s.Notify(t.Context(), rpc.Answer(m.ID, jsontext.Value(`{"action":"decline"}`))); err != nil {
		t.Fatal(err)
	}
	if _, m, err = answer(st); err != nil || !strings.Contains(string(m.Result), "decline") {
		t.Errorf("%s %v", m.Append(nil), err)
	}
	if _, err = st.Next(); err != io.EOF {
		t.Errorf("after the response: %v", err)
	}
}

// Whoever closes a stream before the response has the server told, in the way of its era.
func TestGivenUp(t *testing.T) {
	for _, p := range partners {
		for _, how := range []string{"Close", "context"} {
			t.Run(p.name+", "+how, func(t *testing.T) {
				partner := newSDK(t, p.stateless, p.asJSON)
				s := open(t, reach(t, partner.url))
				ctx, cancel := context.WithCancel(t.Context())
				var all sync.WaitGroup
				defer all.Wait()
				defer cancel()
				all.Go(func() {
					st, err := s.Send(ctx, call(s, "hang", `{}`))
					if err != nil {
						return
					}
					if how == "Close" {
						st.Close()
					}
					_, _ = st.Next()
					st.Close()
				})
				<-partner.hanging
				if how == "context" || p.asJSON { // an answer in JSON does not begin before the server is done
					cancel()
				}
				select {
				case <-partner.cancelled:
				case <-time.After(time.Minute):
					t.Error("the server was not told")
				}
			})
		}
	}
}

func TestSessionsEnd(t *testing.T) {
	partner := newSDK(t, false, false)
	u := reach(t, partner.url)
	one, two := open(t, u), open(t, u)
	one.Close()
	first := <-partner.ended
	if _, _, err := send(one, call(one, "echo", `{}`)); !isGone(err, true) {
		t.Errorf("a request in an ended session: %v", err)
	}
	if _, m, err := send(two, call(two, "echo", `{}`)); err != nil || m.Result == nil {
		t.Errorf("the other session: %v", err)
	}
	if err := u.Close(); err != nil {
		t.Error(err)
	}
	if second := <-partner.ended; first == "" || first == second {
		t.Errorf("ended were %q and %q", first, second)
	}
	if _, err := u.Open(t.Context(), upstream.Client{}); !isGone(err, true) {
		t.Errorf("a session of a closed upstream: %v", err)
	}
}

func TestListen(t *testing.T) {
	s := open(t, reach(t, newSDK(t, true, false).url))
	st, err := s.Listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := st.Next(); err != io.EOF {
		t.Errorf("a server of the modern era says beside answers: %v", err)
	}

	partner := newSDK(t, false, false)
	if st, err = open(t, reach(t, partner.url)).Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	partner.server.RemoveTools("echo")
	if m, err := st.Next(); err != nil || m.Method != "notifications/tools/list_changed" {
		t.Errorf("a server of the legacy era says %s %v", m.Append(nil), err)
	}
}

// In the modern era a server says the same on a stream that is asked for.
func TestSubscription(t *testing.T) {
	partner := newSDK(t, true, false)
	s := open(t, reach(t, partner.url))
	params := rpc.Object{}.With("notifications", jsontext.Value(`{"toolsListChanged":true}`))
	st, err := s.Send(t.Context(), upstream.Request{Method: "subscriptions/listen", Params: withMeta(s, params, rpc.Object{})})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	if m, err := st.Next(); err != nil || m.Method != "notifications/subscriptions/acknowledged" {
		t.Errorf("at first comes %s %v", m.Append(nil), err)
	}
	partner.server.RemoveTools("echo")
	if m, err := st.Next(); err != nil || m.Method != "notifications/tools/list_changed" {
		t.Errorf("then comes %s %v", m.Append(nil), err)
	}
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
