//lint:file-ignore SA1019 what the modern era has left behind is held to, too

package mcp_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"policy-service/pdp/pdptest/browsertest"
	"policy-service/pdp/pdptest/mcptest"
)

func TestMain(m *testing.M) { mcptest.Main(thenBrowser{m}) }

// thenBrowser runs the tests, and then ends the browser that they may have started.
type thenBrowser struct{ tests *testing.M }

func (m thenBrowser) Run() int { return browsertest.Main(m.tests) }

// partner is a server of the SDK, of one era. Over standard streams it has a server for each process.
type partner struct {
	legacy bool
	// both is set if it speaks both eras, and keeps no sessions for clients of the legacy one.
	both bool
	// begun and gone are told when a call of the tool wait begins, and when it has been cancelled.
	begun, gone chan string
	// left are those calls of wait whose connection was closed, by their arguments: a server of the SDK that has no session
	// does not tell its tools.
	left map[string]chan struct{}
}

// waits are the arguments of calls of wait.
var waitsFor = []string{`{"n":1}`, `{"n":2}`}

func newPartner(legacy bool) *partner {
	p := &partner{legacy: legacy, begun: make(chan string, 8), gone: make(chan string, 8), left: map[string]chan struct{}{}}
	for _, arguments := range waitsFor {
		p.left[arguments] = make(chan struct{})
	}
	return p
}

// start serves until the test ends: over HTTP at a URL, over standard streams as a program.
func (p *partner) start(t *testing.T, stdio bool) (url string, command []string) {
	if stdio {
		return "", mcptest.Relay(t, func(ctx context.Context, _ *mcptest.Child, in *bufio.Reader, out net.Conn) {
			_ = p.server().Run(ctx, &sdk.IOTransport{Reader: io.NopCloser(in), Writer: out})
		})
	}
	s := p.server()
	o := &sdk.StreamableHTTPOptions{Stateless: !p.legacy}
	if p.legacy {
		o.EventStore = sdk.NewMemoryEventStore(nil)
	}
	h := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s }, o)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		for arguments, left := range p.left {
			if !p.legacy && bytes.Contains(body, []byte(`"arguments":`+arguments)) && bytes.Contains(body, []byte(`"wait"`)) {
				context.AfterFunc(r.Context(), func() { close(left) })
			}
		}
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		web.CloseClientConnections()
		web.Close()
		for session := range s.Sessions() {
			_ = session.Close()
		}
	})
	return web.URL, nil
}

const (
	notes        = "mem://notes"
	instructions = "Be kind.\n"
)

func (p *partner) server() *sdk.Server {
	yes := func(context.Context, *sdk.SubscribeRequest) error { return nil }
	o := &sdk.ServerOptions{
		Instructions: instructions, PageSize: 2, SubscribeHandler: yes,
		UnsubscribeHandler: func(context.Context, *sdk.UnsubscribeRequest) error { return nil },
		CompletionHandler: func(_ context.Context, r *sdk.CompleteRequest) (*sdk.CompleteResult, error) {
			return &sdk.CompleteResult{Completion: sdk.CompletionResultDetails{Values: []string{r.Params.Argument.Value + "!"}}}, nil
		},
		SupportedProtocolVersions: []string{"2026-07-28"},
	}
	switch {
	case p.both:
		o.SupportedProtocolVersions = nil
	case p.legacy:
		o.SupportedProtocolVersions = []string{"2025-11-25", "2025-06-18"}
	}
	s := sdk.NewServer(&sdk.Implementation{Name: "partner", Version: "1.2.3", Title: "Pärtner"}, o)
	for name, h := range p.tools(s) {
		s.AddTool(&sdk.Tool{Name: name, InputSchema: object}, h)
	}
	for _, name := range []string{"a", "b", "c"} {
		s.AddPrompt(&sdk.Prompt{Name: name}, func(_ context.Context, r *sdk.GetPromptRequest) (*sdk.GetPromptResult, error) {
			return &sdk.GetPromptResult{Messages: []*sdk.PromptMessage{{Role: "user", Content: &sdk.TextContent{Text: "prompt " + r.Params.Name}}}}, nil
		})
	}
	read := func(_ context.Context, r *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
		return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{{URI: r.Params.URI, Text: "a note"}}}, nil
	}
	for _, uri := range []string{notes, "mem://a", "mem://b"} {
		s.AddResource(&sdk.Resource{URI: uri, Name: uri}, read)
	}
	s.AddResourceTemplate(&sdk.ResourceTemplate{URITemplate: "mem://{name}", Name: "all"}, read)
	return s
}

var object = map[string]any{"type": "object"}

func text(all string) *sdk.CallToolResult {
	return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: all}}}
}

// tools are what its tools do.
func (p *partner) tools(s *sdk.Server) map[string]sdk.ToolHandler {
	return map[string]sdk.ToolHandler{
		"echo": func(_ context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			result := text(string(r.Params.Arguments))
			result.StructuredContent = map[string]any{"n": 1}
			return result, nil
		},
		"fail": func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			result := text("no")
			result.IsError = true
			return result, nil
		},
		"change": func(ctx context.Context, _ *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			s.RemovePrompts("new")
			s.AddPrompt(&sdk.Prompt{Name: "new"}, nil)
			s.AddResource(&sdk.Resource{URI: "mem://new", Name: "new"}, nil)
			s.AddTool(&sdk.Tool{Name: "new", InputSchema: object}, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
				return text("new"), nil
			})
			return text("changed"), s.ResourceUpdated(ctx, &sdk.ResourceUpdatedNotificationParams{URI: notes})
		},
		"talk": func(ctx context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			for _, level := range []sdk.LoggingLevel{"debug", "info"} {
				if err := r.Session.Log(ctx, &sdk.LoggingMessageParams{Level: level, Data: "hello"}); err != nil {
					return nil, err
				}
			}
			return text("talked"), nil
		},
		"count": func(ctx context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			for n := range 3 {
				progress := &sdk.ProgressNotificationParams{ProgressToken: r.Params.GetProgressToken(), Progress: float64(n + 1), Message: string(r.Params.Arguments)}
				if err := r.Session.NotifyProgress(ctx, progress); err != nil {
					return nil, err
				}
			}
			return text("counted"), nil
		},
		"wait": func(ctx context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			p.begun <- string(r.Params.Arguments)
			select {
			case <-ctx.Done():
			case <-p.left[string(r.Params.Arguments)]:
			}
			p.gone <- string(r.Params.Arguments)
			return text("left"), ctx.Err()
		},
		"break": func(ctx context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			if r.Extra != nil && r.Extra.CloseSSEStream != nil {
				r.Extra.CloseSSEStream(sdk.CloseSSEStreamArgs{RetryAfter: time.Millisecond})
			}
			return text("whole"), nil
		},
		"ask": ask, "twice": twice,
	}
}

// person is the form of the tools that ask.
func person(question string) *sdk.ElicitParams {
	return &sdk.ElicitParams{Message: question, RequestedSchema: map[string]any{
		"type": "object", "properties": map[string]any{"answer": map[string]any{"type": "string"}},
	}}
}

// ask asks a person, a model and for directories.
func ask(_ context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
	if r.Params.InputResponses == nil {
		return &sdk.CallToolResult{RequestState: "asked", InputRequests: sdk.InputRequestMap{
			"person": person("Who?"), "roots": &sdk.ListRootsParams{},
			"model": &sdk.CreateMessageParams{MaxTokens: 1, Messages: []*sdk.SamplingMessage{{Role: "user", Content: &sdk.TextContent{Text: "Think."}}}},
		}}, nil
	}
	got := r.Params.RequestState
	if e, ok := r.Params.InputResponses["person"].(*sdk.ElicitResult); ok {
		got += " " + e.Action + " " + e.Content["answer"].(string)
	}
	switch m := r.Params.InputResponses["model"].(type) {
	case *sdk.CreateMessageResult:
		got += " " + m.Content.(*sdk.TextContent).Text
	case *sdk.CreateMessageWithToolsResult:
		got += " " + m.Content[0].(*sdk.TextContent).Text
	}
	if l, ok := r.Params.InputResponses["roots"].(*sdk.ListRootsResult); ok {
		got += " " + l.Roots[0].URI
	}
	return text(got), nil
}

// twice asks a person, and then something else.
func twice(ctx context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
	if r.Session.InitializeParams().ProtocolVersion < "2026-07-28" {
		got := ""
		for _, question := range []string{"Who?", "Why?"} {
			e, err := r.Session.Elicit(ctx, person(question))
			if err != nil {
				return nil, err
			}
			got += e.Content["answer"].(string)
		}
		return text(got), nil
	}
	said, state := "", r.Params.RequestState
	if e, ok := r.Params.InputResponses["it"].(*sdk.ElicitResult); ok {
		said = e.Content["answer"].(string)
	}
	switch state {
	case "":
		return &sdk.CallToolResult{RequestState: "1", InputRequests: sdk.InputRequestMap{"it": person("Who?")}}, nil
	case "1":
		return &sdk.CallToolResult{RequestState: "2" + said, InputRequests: sdk.InputRequestMap{"it": person("Why?")}}, nil
	}
	return text(state[1:] + said), nil
}
