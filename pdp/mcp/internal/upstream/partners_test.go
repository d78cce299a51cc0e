package upstream_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/rpc"
	"policy-service/pdp/mcp/internal/upstream"
	"policy-service/pdp/mcp/mcptest"
	"policy-service/pdp/pdptest/written"
)

// sdkServer is a server made with the SDK, of both eras. It writes to said when a call hangs, and when that is cancelled.
// The answer of a call begins before the response unless it is quiet.
func sdkServer(quiet bool, said io.Writer) *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "partner", Version: "1"}, nil)
	add := func(name string, answer func(context.Context, *mcp.CallToolRequest) (string, error)) {
		tool := &mcp.Tool{Name: name, InputSchema: jsontext.Value(`{"type":"object"}`)}
		server.AddTool(tool, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			text, err := answer(ctx, r)
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}, err
		})
	}
	progress := func(ctx context.Context, r *mcp.CallToolRequest, n float64) {
		_ = r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: r.Params.GetProgressToken(), Progress: n})
	}
	add("echo", func(_ context.Context, r *mcp.CallToolRequest) (string, error) {
		return string(r.Params.Arguments), nil
	})
	add("progress", func(ctx context.Context, r *mcp.CallToolRequest) (string, error) {
		for n := range 3 {
			progress(ctx, r, float64(n))
		}
		return "done", nil
	})
	add("form", func(ctx context.Context, r *mcp.CallToolRequest) (string, error) {
		schema := jsontext.Value(`{"type":"object","properties":{}}`)
		a, err := r.Session.Elicit(ctx, &mcp.ElicitParams{Message: "sure?", RequestedSchema: schema})
		if err != nil {
			return "", err
		}
		return a.Action, nil
	})
	add("grow", func(context.Context, *mcp.CallToolRequest) (string, error) {
		add("grown", nil)
		return "grown", nil
	})
	add("hang", func(ctx context.Context, r *mcp.CallToolRequest) (string, error) {
		if !quiet {
			progress(ctx, r, 0)
		}
		_, _ = fmt.Fprintln(said, "it hangs")
		<-ctx.Done()
		_, _ = fmt.Fprintln(said, "it is cancelled")
		return "", ctx.Err()
	})
	return server
}

// sdk is a server of the SDK over HTTP. Ended gets the ids of sessions that were ended.
type sdk struct {
	url   string
	ended chan string
}

func newSDK(t testing.TB, stateless, asJSON bool, said io.Writer) *sdk {
	t.Helper()
	s := &sdk{ended: make(chan string, 10)}
	server := sdkServer(asJSON, said)
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

// sdkChild is a server of the SDK that is a program.
func sdkChild() {
	if err := sdkServer(false, os.Stderr).Run(context.Background(), &mcp.StdioTransport{}); err != nil {
		log.Fatal(err)
	}
}

// partner is a server of the SDK, with the era that it is spoken with. AsJSON says that its answers are responses alone.
type partner struct {
	name    string
	era     era.Era
	program bool
	asJSON  bool
}

var partners = []partner{
	{"stateful, events", era.Legacy, false, false},
	{"stateful, JSON", era.Legacy, false, true},
	{"stateless, events", era.Modern, false, false},
	{"stateless, JSON", era.Modern, false, true},
	{"program of the legacy era", era.Legacy, true, false},
	{"program of the modern era", era.Modern, true, false},
}

func (p partner) open(t *testing.T, said *written.Text) upstream.Session {
	t.Helper()
	var u upstream.Upstream
	if p.program {
		u = newChild(t, "sdk", func(o *upstream.CommandOptions) {
			o.Eras, o.Logger = []era.Era{p.era}, slog.New(slog.NewJSONHandler(said, nil))
		})
	} else {
		u = reach(t, newSDK(t, p.era == era.Modern, p.asJSON, said).url)
	}
	s, err := u.Open(t.Context(), upstream.Client{Principal: "alice", Capabilities: jsontext.Value(`{"elicitation":{}}`)})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestPartners(t *testing.T) {
	for _, p := range partners {
		t.Run(p.name, func(t *testing.T) {
			s := p.open(t, &written.Text{})
			if s.Era() != p.era || !strings.Contains(string(s.Server()), `"capabilities"`) {
				t.Fatalf("the era is %s, the server says of itself %s", s.Era(), s.Server())
			}
			const arguments = `{"amount":9007199254740993,"text":"zażółć"}`
			_, m, err := send(s, call(s, "echo", arguments))
			if err != nil || !m.ID.IsZero() || !strings.Contains(string(m.Result), string(rpc.String(arguments))) {
				t.Errorf("echo: %s %v", m.Append(nil), err)
			}
			if _, m, err = send(s, call(s, "nobody knows ż it", `{}`)); err != nil || m.Error == nil || !m.ID.IsZero() {
				t.Errorf("an unknown tool: %s %v", m.Append(nil), err)
			}
			_, m, err = send(s, upstream.Request{Method: "no/method", Params: withMeta(s, rpc.Object{}, rpc.Object{})})
			if p.program || p.era == era.Modern {
				if err != nil || !strings.Contains(string(m.Error), "-32601") {
					t.Errorf("an unknown method: %s %v", m.Append(nil), err)
				}
			} else if describe(err) != "not sent false, gone false, answer null: the upstream answers with status 400" {
				t.Errorf("an unknown method: %s", describe(err))
			}
			if !p.asJSON {
				p.progresses(t, s)
				p.says(t, s)
			}
			if p.era == era.Legacy && !p.asJSON {
				p.asks(t, s)
			}
		})
	}
}

// progresses has a call make progress.
func (p partner) progresses(t *testing.T, s upstream.Session) {
	params := rpc.Object{}.With("name", rpc.String("progress")).With("arguments", jsontext.Value(`{}`))
	meta := rpc.Object{}.With("progressToken", jsontext.Value("7"))
	before, m, err := send(s, upstream.Request{Method: "tools/call", Params: withMeta(s, params, meta)})
	if err != nil || m.Result == nil {
		t.Fatalf("%s %v", m.Append(nil), err)
	}
	if len(before) != 3 || before[2].Method != "notifications/progress" || !strings.Contains(string(before[2].Params), `"progress":2`) {
		t.Errorf("progress came %d times", len(before))
	}
}

// says has the server say that its tools changed: in the modern era on a stream that is asked for, else beside answers.
func (p partner) says(t *testing.T, s upstream.Session) {
	st := listen(t, s)
	if p.era == era.Modern {
		if _, err := st.Next(); err != io.EOF {
			t.Errorf("a server of the modern era says beside answers: %v", err)
		}
		params := rpc.Object{}.With("notifications", jsontext.Value(`{"toolsListChanged":true}`))
		st = begin(t, s, upstream.Request{Method: "subscriptions/listen", Params: withMeta(s, params, rpc.Object{})})
		if m, err := st.Next(); err != nil || m.Method != "notifications/subscriptions/acknowledged" {
			t.Errorf("at first comes %s %v", m.Append(nil), err)
		}
	}
	if before, _, err := send(s, call(s, "grow", `{}`)); err != nil || len(before) > 0 {
		t.Errorf("%v before the response, %v", before, err)
	}
	if m, err := st.Next(); err != nil || m.Method != "notifications/tools/list_changed" {
		t.Errorf("then comes %s %v", m.Append(nil), err)
	}
	st.Close()
	if _, err := st.Next(); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("after it was given up: %v", err)
	}
}

// asks has the server ask the client.
func (p partner) asks(t *testing.T, s upstream.Session) {
	st := begin(t, s, call(s, "form", `{}`))
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

// A stream that is closed before the response is reported to the server, in the way of its era.
func TestGivenUp(t *testing.T) {
	for _, p := range partners {
		for _, how := range []string{"Close", "context"} {
			t.Run(p.name+", "+how, func(t *testing.T) {
				var said written.Text
				s := p.open(t, &said)
				ctx, cancel := context.WithCancel(t.Context())
				hangs := make(chan struct{})
				var all sync.WaitGroup
				defer all.Wait()
				defer cancel()
				all.Go(func() {
					st, err := s.Send(ctx, call(s, "hang", `{}`))
					if err != nil {
						return
					}
					if how == "Close" {
						select {
						case <-hangs:
						case <-ctx.Done():
						}
						st.Close()
					}
					for err == nil {
						_, err = st.Next()
					}
					if how == "context" && !errors.Is(err, context.Canceled) {
						t.Errorf("the stream ends with %v", err)
					}
					st.Close()
				})
				mcptest.Until(t, "the call hangs", func() bool { return strings.Contains(said.String(), "it hangs") })
				close(hangs)
				if how == "context" || p.asJSON { // an answer in JSON does not begin before the server is done
					cancel()
				}
				mcptest.Until(t, "the server heard of it", func() bool { return strings.Contains(said.String(), "it is cancelled") })
				cancel()
				if _, err := s.Send(ctx, call(s, "echo", `{}`)); !errors.Is(err, context.Canceled) || !strings.HasPrefix(describe(err), "not sent true") {
					t.Errorf("another request of a client that has gone: %s", describe(err))
				}
			})
		}
	}
}

func TestSessionsEnd(t *testing.T) {
	partner := newSDK(t, false, false, io.Discard)
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
