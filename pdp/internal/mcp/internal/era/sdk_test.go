package era_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"policy-service/pdp/internal/mcp/internal/era"
	"policy-service/pdp/internal/rpc"
	"policy-service/pdp/pdptest/mcptest"
)

// The SDK's own server is the partner of these tests: the same server, once in each era.

const mirrored = `{"type":"object","properties":{
	"region":{"type":"string","x-mcp-header":"Region"},
	"count":{"type":"integer","x-mcp-header":"Count"},
	"sure":{"type":"boolean","x-mcp-header":"Sure"},
	"deep":{"type":"object","properties":{"er":{"type":"string","x-mcp-header":"Deep-Er"}}}}}`

func sdkServer() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "partner", Version: "1.2.3", Title: "Pärtner"}, &mcp.ServerOptions{Instructions: "Be kind.\n"})
	s.AddTool(&mcp.Tool{Name: "mirrored", InputSchema: json.RawMessage(mirrored)}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{
			Content:           []mcp.Content{&mcp.TextContent{Text: "done é\u2028"}},
			StructuredContent: map[string]any{"n": json.RawMessage(`1.0`)},
		}, nil
	})
	s.AddTool(&mcp.Tool{Name: "naïve tool", InputSchema: json.RawMessage(`{"type":"object"}`)}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{}, Meta: mcp.Meta{"x.example/k": 1}}, nil
	})
	s.AddPrompt(&mcp.Prompt{Name: "p"}, func(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		return &mcp.GetPromptResult{Description: "d", Messages: []*mcp.PromptMessage{}}, nil
	})
	s.AddResource(&mcp.Resource{URI: "file:///a", Name: "a"}, func(_ context.Context, r *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: r.Params.URI, Text: "x"}}}, nil
	})
	return s
}

// partner is the server in one era.
type partner struct {
	era     era.Era
	url     string
	session string
}

func startPartner(t *testing.T, e era.Era) *partner {
	s := sdkServer()
	h := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s },
		&mcp.StreamableHTTPOptions{Stateless: e == era.Modern, JSONResponse: true})
	web := httptest.NewServer(h)
	t.Cleanup(web.Close)
	return &partner{era: e, url: web.URL}
}

// send sends params as they are, and as many headers as are given.
func (p *partner) send(t *testing.T, m rpc.Message, h http.Header) (status int, answer rpc.Message) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.url, strings.NewReader(string(m.Append(nil))))
	mcptest.Must(t, err)
	for name, values := range h {
		r.Header[name] = values
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	if p.session != "" {
		r.Header.Set("Mcp-Session-Id", p.session)
	}
	w, err := http.DefaultClient.Do(r)
	mcptest.Must(t, err)
	defer func() { _ = w.Body.Close() }()
	body, err := io.ReadAll(w.Body)
	mcptest.Must(t, err)
	if id := w.Header.Get("Mcp-Session-Id"); id != "" {
		p.session = id
	}
	if len(body) == 0 {
		return w.StatusCode, rpc.Message{}
	}
	answer, fault := rpc.Parse(body)
	if fault != nil {
		t.Fatalf("%s %q: %s", w.Status, body, fault.Detail)
	}
	return w.StatusCode, answer
}

// ask asks for something as a client of the server's era does.
func (p *partner) ask(t *testing.T, method, params string) rpc.Message {
	t.Helper()
	o := object(t, params)
	h := http.Header{}
	if p.era == era.Modern {
		o = era.ToModern(o, testClient)
		h = headers(method, o)
	}
	_, answer := p.send(t, rpc.Message{ID: rpc.IntID(1), Method: method, Params: o.Value()}, h)
	return answer
}

var testClient = era.Meta{Version: "2026-07-28", Client: []byte(`{"name":"test","version":"1"}`)}

// headers are those of a modern request, which are all right.
func headers(method string, params rpc.Object) http.Header {
	h := http.Header{era.VersionHeader: {"2026-07-28"}, era.MethodHeader: {method}}
	if member := era.Named[method]; member != "" {
		h[era.NameHeader] = []string{era.EncodeHeader(params.GetString(member))}
	}
	return h
}

func object(t *testing.T, text string) rpc.Object {
	t.Helper()
	o, err := rpc.ParseObject([]byte(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return o
}

// plainJSON is a text that two values share if they are the same in JSON.
func plainJSON(t *testing.T, text []byte) string {
	t.Helper()
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	b, err := json.Marshal(v)
	mcptest.Must(t, err)
	return string(b)
}

const initialize = `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}`

// A result, an error and a handshake of one era are, changed, those that the same server gives in the other.
func TestErasOfOneServer(t *testing.T) {
	legacy, modern := startPartner(t, era.Legacy), startPartner(t, era.Modern)
	handshake := legacy.ask(t, "initialize", initialize)
	legacy.send(t, rpc.Message{Method: "notifications/initialized"}, nil)
	discovery := modern.ask(t, "server/discover", `{}`)

	info := era.ServerInfo(handshake.Result, era.Legacy)
	if other := era.ServerInfo(discovery.Result, era.Modern); info == nil || plainJSON(t, info) != plainJSON(t, other) {
		t.Errorf("the server is %s and %s", info, other)
	}
	for _, c := range []struct{ method, params string }{
		{"tools/list", `{}`},
		{"prompts/list", `{}`},
		{"resources/list", `{}`},
		{"resources/templates/list", `{}`},
		{"tools/call", `{"name":"mirrored","arguments":{}}`},
		{"tools/call", `{"name":"none"}`},
		{"prompts/get", `{"name":"p"}`},
		{"prompts/get", `{"name":"none"}`},
		{"resources/read", `{"uri":"file:///a"}`},
	} {
		t.Run(c.method+c.params, func(t *testing.T) {
			old, new := legacy.ask(t, c.method, c.params), modern.ask(t, c.method, c.params)
			if (old.Result == nil) != (new.Result == nil) {
				t.Fatalf("the server answers %s and %s", old.Append(nil), new.Append(nil))
			}
			up := era.WithServer(era.Response(c.method, old, era.Legacy, era.Modern), info)
			want := era.Response(c.method, new, era.Modern, era.Modern)
			if got, want := plainJSON(t, up.Append(nil)), plainJSON(t, want.Append(nil)); got != want {
				t.Errorf("to modern %s\nits own   %s", got, want)
			}
			if old.Result != nil { // the SDK says in both eras that anybody may keep a list
				old.Result = object(t, string(old.Result)).Without(func(n string) bool { return n == "ttlMs" || n == "cacheScope" }).Value()
			}
			down := era.Response(c.method, new, era.Modern, era.Legacy)
			if got, want := plainJSON(t, down.Append(nil)), plainJSON(t, old.Append(nil)); got != want {
				t.Errorf("to legacy %s\nits own   %s", got, want)
			}
			if again := era.Response(c.method, old, era.Legacy, era.Legacy); string(again.Append(nil)) != string(old.Append(nil)) {
				t.Errorf("within the era %s became %s", old.Append(nil), again.Append(nil))
			}
		})
	}

	for from, server := range map[era.Era]rpc.Message{era.Legacy: handshake, era.Modern: discovery} {
		first, err := era.Initialized(server.Result, from, "2025-11-25", rpc.Object{})
		if err != nil || plainJSON(t, first) != plainJSON(t, handshake.Result) {
			t.Errorf("%s server: initialize gives %s (%v)\nits own is %s", from, first, err, handshake.Result)
		}
		second, err := era.Discovered(server.Result, from, rpc.Object{})
		mcptest.Must(t, err)
		versions, _ := json.Marshal(era.Versions())
		own := object(t, string(discovery.Result)).With("supportedVersions", versions).
			With("ttlMs", []byte(`0`)).With("cacheScope", []byte(`"private"`))
		if plainJSON(t, second) != plainJSON(t, own.Value()) {
			t.Errorf("%s server: server/discover gives %s\nits own is %s", from, second, own.Value())
		}
	}
}
