//lint:file-ignore SA1019 what the modern era has left behind is held to, too

package mcp_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"policy-service/pdp/internal/mcp"
	"policy-service/pdp/pdptest"
)

// cell is one of the table: who speaks with whom, and by what.
type cell struct {
	legacy, stdio     bool // of the client
	upLegacy, upStdio bool // of the server
}

func (c cell) String() string {
	name := func(legacy, stdio bool) string {
		era, over := "modern", "http"
		if legacy {
			era = "legacy"
		}
		if stdio {
			over = "stdio"
		}
		return era + "-" + over
	}
	return name(c.legacy, c.stdio) + "→" + name(c.upLegacy, c.upStdio)
}

// cells are all there are.
func cells() (all []cell) {
	for n := range 16 {
		all = append(all, cell{n&1 > 0, n&2 > 0, n&4 > 0, n&8 > 0})
	}
	return all
}

// next is what comes next, soon.
func next[T any](t *testing.T, from <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(time.Minute):
		t.Fatal("nothing came")
	}
	return v
}

// gateway is a gateway between a client and a server, with a PDP that permits everything.
func gateway(t testing.TB, pdp string, upstream mcp.UpstreamConfig, change ...func(*mcp.Config)) *mcp.Gateway {
	t.Helper()
	if upstream.URL != "" {
		upstream.AllowNetworks = []string{"127.0.0.0/8", "::1/128"}
	}
	upstream.Timeout = 20 * time.Second
	c := mcp.Config{
		Listen: "127.0.0.1:0", Resource: "http://127.0.0.1:8181/mcp", PDP: mcp.PDPConfig{URL: pdp, Timeout: time.Minute},
		Identity:  mcp.IdentityConfig{Static: &mcp.StaticConfig{Sub: "alice", ClientID: "agent-1"}},
		Upstreams: map[string]mcp.UpstreamConfig{"partner": upstream},
	}
	for _, f := range change {
		f(&c)
	}
	g, err := mcp.New(t.Context(), c, mcp.Deps{Logger: slog.New(slog.NewTextHandler(&logged{t}, nil))})
	orFail(t, err)
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	return g
}

// relayed are servers that may ask everything.
var relayed = mcp.ServerRequests{Elicitation: mcp.RelayOn, Sampling: mcp.RelayOn, Roots: mcp.RelayOn}

// serve serves a gateway over HTTP until the test ends.
func serve(t testing.TB, g *mcp.Gateway) (url string) {
	s := httptest.NewServer(g.Handler())
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s.URL + mcp.Endpoint
}

// pipes serves a gateway over standard streams until the test ends.
func pipes(t *testing.T, g *mcp.Gateway) (in io.WriteCloser, out io.ReadCloser) {
	ours, in := io.Pipe()
	out, theirs := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- g.ServeStdio(context.Background(), ours, theirs)
		_ = theirs.Close()
	}()
	t.Cleanup(func() {
		_ = in.Close()
		_ = out.Close()
		if err := <-ended; err != nil && !errors.Is(err, io.ErrClosedPipe) {
			t.Error(err)
		}
	})
	return in, out
}

// heard is what a client was told.
type heard struct {
	tools, prompts, resources chan struct{}
	updated                   chan string
	logs                      chan string
	progress                  chan *sdk.ProgressNotificationParams
	asked                     chan string
}

// client is a client of the SDK, of one era, connected to a gateway.
func (c cell) client(t *testing.T, g *mcp.Gateway) (*sdk.ClientSession, *heard) {
	t.Helper()
	h := &heard{
		make(chan struct{}, 64), make(chan struct{}, 64), make(chan struct{}, 64), make(chan string, 64), make(chan string, 64),
		make(chan *sdk.ProgressNotificationParams, 64), make(chan string, 64),
	}
	client := sdk.NewClient(&sdk.Implementation{Name: "client", Version: "1"}, &sdk.ClientOptions{
		ToolListChangedHandler:      func(context.Context, *sdk.ToolListChangedRequest) { h.tools <- struct{}{} },
		PromptListChangedHandler:    func(context.Context, *sdk.PromptListChangedRequest) { h.prompts <- struct{}{} },
		ResourceListChangedHandler:  func(context.Context, *sdk.ResourceListChangedRequest) { h.resources <- struct{}{} },
		ResourceUpdatedHandler:      func(_ context.Context, r *sdk.ResourceUpdatedNotificationRequest) { h.updated <- r.Params.URI },
		LoggingMessageHandler:       func(_ context.Context, r *sdk.LoggingMessageRequest) { h.logs <- string(r.Params.Level) },
		ProgressNotificationHandler: func(_ context.Context, r *sdk.ProgressNotificationClientRequest) { h.progress <- r.Params },
		ElicitationHandler: func(_ context.Context, r *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
			h.asked <- r.Params.Message
			answer := "Ada"
			if strings.HasSuffix(r.Params.Message, "Why?") {
				answer = "why not"
			}
			return &sdk.ElicitResult{Action: "accept", Content: map[string]any{"answer": answer}}, nil
		},
		CreateMessageHandler: func(context.Context, *sdk.CreateMessageRequest) (*sdk.CreateMessageResult, error) {
			return &sdk.CreateMessageResult{Model: "m", Role: "assistant", Content: &sdk.TextContent{Text: "thought"}}, nil
		},
	})
	client.AddRoots(&sdk.Root{URI: "file:///home/ada"})
	o := &sdk.ClientSessionOptions{ProtocolVersion: "2026-07-28"}
	if c.legacy {
		o.ProtocolVersion = "2025-11-25"
	}
	var transport sdk.Transport
	if c.stdio {
		in, out := pipes(t, g)
		transport = &sdk.IOTransport{Reader: out, Writer: in}
	} else {
		transport = &sdk.StreamableClientTransport{Endpoint: serve(t, g)}
	}
	s, err := client.Connect(t.Context(), transport, o)
	orFail(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s, h
}

// between is a client, a gateway and a server of the SDK.
type between struct {
	*sdk.ClientSession
	*heard
	cell    cell
	partner *partner
}

func (c cell) between(t *testing.T, pdp string, asks mcp.ServerRequests) between {
	p := newPartner(c.upLegacy)
	upstream := mcp.UpstreamConfig{ServerRequests: asks}
	upstream.URL, upstream.Command = p.start(t, c.upStdio)
	s, h := c.client(t, gateway(t, pdp, upstream))
	return between{s, h, c, p}
}

// TestEras has real clients and servers of both eras speak with each other through a gateway, over everything there is.
func TestEras(t *testing.T) {
	t.Parallel()
	pdp := pdptest.Start(t, permitAll, open).URL
	for _, c := range cells() {
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			b := c.between(t, pdp, relayed)
			for _, what := range []struct {
				name  string
				holds func(*testing.T, between)
			}{
				{"discovery", discovered}, {"tools", toolsOf}, {"resources", resourcesOf}, {"prompts", promptsOf}, {"completion", completed},
				{"logs", logs}, {"progress", progress}, {"cancel", cancelled}, {"changes", changes}, {"asks", asks},
			} {
				t.Run(what.name, func(t *testing.T) { what.holds(t, b) })
			}
		})
	}
}

func discovered(t *testing.T, b between) {
	got, want := b.InitializeResult(), "2026-07-28"
	if b.cell.legacy {
		want = "2025-11-25"
	}
	if got.ProtocolVersion != want || got.Instructions != instructions {
		t.Errorf("%q %q", got.ProtocolVersion, got.Instructions)
	}
	if got.ServerInfo == nil || got.ServerInfo.Name != "partner" || got.ServerInfo.Title != "Pärtner" {
		t.Errorf("server %+v", got.ServerInfo)
	}
	if c := got.Capabilities; c.Tools == nil || !c.Tools.ListChanged || c.Resources == nil || !c.Resources.Subscribe || c.Completions == nil {
		t.Errorf("capabilities %+v", c)
	}
	if err := b.Ping(t.Context(), nil); (err == nil) != b.cell.legacy {
		t.Errorf("ping: %v", err)
	}
}

// call calls a tool, and gives the text of its result.
func (b between) call(t *testing.T, name string, arguments any) string {
	t.Helper()
	result, err := b.CallTool(t.Context(), &sdk.CallToolParams{Name: name, Arguments: arguments})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return result.Content[0].(*sdk.TextContent).Text
}

func toolsOf(t *testing.T, b between) {
	list, err := b.ListTools(t.Context(), nil)
	orFail(t, err)
	var names []string
	for _, tool := range list.Tools {
		names = append(names, tool.Name)
	}
	if want := []string{"ask", "break", "change", "count", "echo", "fail", "talk", "twice", "wait"}; !slices.Equal(names, want) || list.NextCursor != "" {
		t.Errorf("%q %q", names, list.NextCursor)
	}
	if got := b.call(t, "break", nil); got != "whole" { // a server of the legacy era has its clients come back for it
		t.Errorf("an answer that breaks off comes as %q", got)
	}
	result, err := b.CallTool(t.Context(), &sdk.CallToolParams{Name: "echo", Arguments: map[string]any{"a": "é\u2028"}})
	orFail(t, err)
	if got := result.Content[0].(*sdk.TextContent).Text; got != "{\"a\":\"é\u2028\"}" && got != `{"a":"é\u2028"}` {
		t.Errorf("arguments %s", got)
	}
	if structured, _ := result.StructuredContent.(map[string]any); structured["n"] != 1.0 {
		t.Errorf("structured content %v", result.StructuredContent)
	}
	if result, err = b.CallTool(t.Context(), &sdk.CallToolParams{Name: "fail"}); err != nil || !result.IsError {
		t.Errorf("a tool that fails: %+v %v", result, err)
	}
	if _, err = b.CallTool(t.Context(), &sdk.CallToolParams{Name: "absent"}); err == nil {
		t.Error("there is no such tool, and it runs")
	}
}

func resourcesOf(t *testing.T, b between) {
	var uris []string
	for r, err := range b.Resources(t.Context(), nil) {
		orFail(t, err)
		uris = append(uris, r.URI)
	}
	if want := []string{"mem://a", "mem://b", notes}; !slices.Equal(uris, want) {
		t.Errorf("%q", uris)
	}
	page, err := b.ListResources(t.Context(), nil)
	if err != nil || len(page.Resources) != 2 || page.NextCursor == "" {
		t.Fatalf("the first page: %+v %v", page, err)
	}
	if _, err := b.ListPrompts(t.Context(), &sdk.ListPromptsParams{Cursor: page.NextCursor}); err == nil {
		t.Error("the cursor of another list is taken")
	}
	templates, err := b.ListResourceTemplates(t.Context(), nil)
	if err != nil || len(templates.ResourceTemplates) != 1 {
		t.Errorf("templates: %+v %v", templates, err)
	}
	read, err := b.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: notes})
	if err != nil || read.Contents[0].Text != "a note" {
		t.Errorf("read: %+v %v", read, err)
	}
	if _, err := b.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: "other://x"}); err == nil {
		t.Error("there is no such resource, and it is read")
	}
}

func promptsOf(t *testing.T, b between) {
	var names []string
	for p, err := range b.Prompts(t.Context(), nil) {
		orFail(t, err)
		names = append(names, p.Name)
	}
	if want := []string{"a", "b", "c"}; !slices.Equal(names, want) {
		t.Errorf("%q", names)
	}
	got, err := b.GetPrompt(t.Context(), &sdk.GetPromptParams{Name: "b"})
	if err != nil || got.Messages[0].Content.(*sdk.TextContent).Text != "prompt b" {
		t.Errorf("%+v %v", got, err)
	}
}

func completed(t *testing.T, b between) {
	got, err := b.Complete(t.Context(), &sdk.CompleteParams{
		Ref: &sdk.CompleteReference{Type: "ref/prompt", Name: "a"}, Argument: sdk.CompleteParamsArgument{Name: "x", Value: "b"},
	})
	if err != nil || !slices.Equal(got.Completion.Values, []string{"b!"}) {
		t.Errorf("%+v %v", got, err)
	}
}

// logs come as a client wants them: by a level that it sets, or says with the request.
func logs(t *testing.T, b between) {
	p := &sdk.CallToolParams{Name: "talk"}
	if b.cell.legacy {
		orFail(t, b.SetLoggingLevel(t.Context(), &sdk.SetLoggingLevelParams{Level: "info"}))
	} else {
		b.call(t, "talk", nil) // in silence
		p.Meta = sdk.Meta{"io.modelcontextprotocol/logLevel": "info"}
	}
	if _, err := b.CallTool(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if level := next(t, b.logs); level != "info" {
		t.Errorf("a message of level %s", level)
	}
	if len(b.logs) > 0 {
		t.Errorf("another message, of level %s", next(t, b.logs))
	}
}

// Progress of two calls at once that have one token comes for each, and under that token.
func progress(t *testing.T, b between) {
	done := make(chan error)
	for _, n := range []int{1, 2} {
		go func() {
			_, err := b.CallTool(t.Context(), &sdk.CallToolParams{Name: "count", Arguments: map[string]any{"n": n}, Meta: sdk.Meta{"progressToken": "mine"}})
			done <- err
		}()
	}
	got := map[string][]float64{}
	for range 6 {
		p := next(t, b.progress)
		if p.ProgressToken != "mine" {
			t.Errorf("progress by %v", p.ProgressToken)
		}
		got[p.Message] = append(got[p.Message], p.Progress)
	}
	for range 2 {
		if err := next(t, done); err != nil {
			t.Error(err)
		}
	}
	for _, n := range []string{`{"n":1}`, `{"n":2}`} {
		if !slices.Equal(got[n], []float64{1, 2, 3}) {
			t.Errorf("progress of %s: %v", n, got[n])
		}
	}
}

// A call that its client gives up is given up at the server, and no other is.
func cancelled(t *testing.T, b between) {
	ctx, cancel := context.WithCancel(t.Context())
	other, end := context.WithCancel(t.Context())
	defer end()
	done := make(chan error, 2)
	wait := func(ctx context.Context, n int) {
		_, err := b.CallTool(ctx, &sdk.CallToolParams{Name: "wait", Arguments: map[string]any{"n": n}})
		done <- err
	}
	go wait(ctx, 1)
	go wait(other, 2)
	next(t, b.partner.begun)
	next(t, b.partner.begun)
	cancel()
	if n := next(t, b.partner.gone); n != `{"n":1}` {
		t.Errorf("the call %s was given up", n)
	}
	if err := next(t, done); !errors.Is(err, context.Canceled) {
		t.Errorf("the client sees %v", err)
	}
	end()
	next(t, b.partner.gone)
	next(t, done)
}

// What changes at the server, its clients hear: as soon as they listen, which nobody tells a client of the SDK.
func changes(t *testing.T, b between) {
	orFail(t, b.Subscribe(t.Context(), &sdk.SubscribeParams{URI: notes}))
	need := map[string]bool{"tools": true, "prompts": true, "resources": true, notes: true}
	late := time.After(time.Minute)
	for len(need) > 0 {
		b.call(t, "change", nil)
		for pause := time.After(100 * time.Millisecond); pause != nil && len(need) > 0; {
			select {
			case <-b.tools:
				delete(need, "tools")
			case <-b.prompts:
				delete(need, "prompts")
			case <-b.resources:
				delete(need, "resources")
			case uri := <-b.updated:
				delete(need, uri)
			case <-pause:
				pause = nil
			case <-late:
				t.Fatalf("nothing was heard of %v", need)
			}
		}
	}
	list, err := b.ListTools(t.Context(), nil)
	if err != nil || !slices.ContainsFunc(list.Tools, func(t *sdk.Tool) bool { return t.Name == "new" }) {
		t.Errorf("the new tool is not listed: %v", err)
	}
	if err := b.Unsubscribe(t.Context(), &sdk.UnsubscribeParams{URI: notes}); err != nil {
		t.Error(err)
	}
}

// Servers ask their clients, and clients answer, each as its era has it.
func asks(t *testing.T, b between) {
	got := b.call(t, "ask", nil)
	if want := "asked accept Ada thought file:///home/ada"; got != want {
		t.Errorf("asked for all, the server got %q", got)
	}
	if m := next(t, b.asked); m != "[partner asks] Who?" {
		t.Errorf("the person was asked %q", m)
	}
	if got := b.call(t, "twice", nil); got != "Adawhy not" {
		t.Errorf("asked twice, the server got %q", got)
	}
	if a, b := next(t, b.asked), next(t, b.asked); a != "[partner asks] Who?" || b != "[partner asks] Why?" {
		t.Errorf("the person was asked %q and %q", a, b)
	}
}

// TestServerWithoutSessions: a server of both eras that keeps no sessions forgets in the legacy era what its client takes, and has
// no stream. Clients of both eras are asked and hear of changes all the same.
func TestServerWithoutSessions(t *testing.T) {
	t.Parallel()
	pdp := pdptest.Start(t, permitAll, open).URL
	for _, c := range []cell{{legacy: true}, {legacy: true, stdio: true}, {}} {
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			p := newPartner(false)
			p.both = true
			url, _ := p.start(t, false)
			g := gateway(t, pdp, mcp.UpstreamConfig{URL: url, ServerRequests: relayed})
			s, h := c.client(t, g)
			b := between{s, h, c, p}
			discovered(t, b)
			changes(t, b)
			asks(t, b)
			other := cell{legacy: !c.legacy}
			s, h = other.client(t, g)
			asks(t, between{s, h, other, p})
		})
	}
}
