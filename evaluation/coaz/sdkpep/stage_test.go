package sdkpep_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient"
	"policy-service/evaluation/coaz"
	"policy-service/evaluation/coaz/sdkpep"
	"policy-service/pdp/pdptest"
)

const resource = "https://mcp.example.com"

// bundle has alice do everything but what is forbidden her, and bob nothing.
var bundle = map[string]string{
	"a.cedar": `@id("alice") permit(principal == identity::"alice", action, resource);
@id("user") permit(principal == user::"alice", action, resource);
@id("kept") @reason_user("Keep this customer.") forbid(principal, action == Action::"get_customer", resource == customer::"kept");
@id("archive") forbid(principal, action == Action::"write", resource == storage_object::"/archive");
@id("frozen") forbid(principal, action == Action::"close_account", resource == account::"frozen");
@id("secret") forbid(principal, action == Action::"resources/subscribe", resource == resource::"mem://secret");
@id("masked") @obligation("mask") permit(principal == identity::"alice", action == Action::"masked", resource);
@id("logged") @obligation("write") permit(principal == identity::"alice", action == Action::"logged", resource);
@id("asked") @obligation("ask") permit(principal == identity::"alice", action == Action::"asked", resource);`,
	"obligations.yaml": "mask: {type: redact, properties: {fields: [/secret]}}\nwrite: {type: log}\nask: {type: approval_required}\n",
}

// TestMain starts a server on the bundle, and sets PDP_URL to its address for the example.
func TestMain(m *testing.M) {
	addr, stop, err := pdptest.Serve(pdptest.Bundle(bundle))
	if err == nil {
		err = os.Setenv("PDP_URL", "http://"+addr)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	stop()
	os.Exit(code)
}

// stage is a real PDP, a server with its PEP over HTTP, and what was executed.
type stage struct {
	t   *testing.T
	pdp string
	url string

	mu       sync.Mutex
	executed []string // method and arguments of what had its effect
	asked    []string // what the PDP was asked
}

// declares is a tool's schema with a mapping.
func declares(mapping string) json.RawMessage {
	return json.RawMessage(`{"type":"object","x-authzen-mapping":` + mapping + `}`)
}

const figure = `{"evaluation":{"subject":{"type":"identity","id":"$token.sub"},"action":{"name":"get_customer"},"resource":{"type":"customer","id":"$params.arguments.id"},"context":{"agent":"$token.?client_id"}}}`

// schemas are the tools.
var schemas = map[string]json.RawMessage{
	"weather":      json.RawMessage(`{"type":"object","properties":{"__entity":{"enum":[null]}}}`),
	"get_customer": declares(figure),
	"copy_object":  declares(`{"evaluations":{"subject":{"type":"identity","id":"$token.sub"},"evaluations":[{"action":{"name":"read"},"resource":{"type":"storage_object","id":"$params.arguments.source"}},{"action":{"name":"write"},"resource":{"type":"storage_object","id":"$params.arguments.destination"}}]}}`),
	"pays":         declares(`{"evaluation":{"action":{"name":"pay"},"resource":{"type":"account","id":"1","properties":{"amount":"$params.arguments.amount"}}}}`),
	"masked":       declares(`{"evaluation":{"action":{"name":"masked"},"resource":{"type":"x","id":"1"}}}`),
	"logged":       declares(`{"evaluation":{"action":{"name":"logged"},"resource":{"type":"x","id":"1"}}}`),
	"asked":        declares(`{"evaluation":{"action":{"name":"asked"},"resource":{"type":"x","id":"1"}}}`),
	"constant":     declares(`{"evaluation":{"action":{"name":"x"},"resource":{"type":"x","id":"1"}}}`),
	"malformed":    declares(`{"evaluation":{"action":{"name":"$params.("},"resource":{"type":"x","id":"1"}}}`),
	"null":         declares(`null`),
	"someone":      declares(`{"evaluation":{"subject":{"type":"identity","id":"$params.arguments.who"},"action":{"name":"x"},"resource":{"type":"x","id":"1"}}}`),
}

// setting changes a stage before it is open.
type setting struct {
	modern  bool
	pdp     string // "" is a real one
	tools   func(string) (evaluation.Object, bool)
	options []sdkpep.Option
	bare    bool // without Strict before it
	client  []authzenclient.Option
	extend  func(*mcp.Server)
}

var newBinding = sync.OnceValues(func() (*coaz.Binding, error) { return coaz.New(coaz.Options{Resource: resource}) })

func open(t *testing.T, set setting) *stage {
	t.Helper()
	s := &stage{t: t, pdp: set.pdp}
	if s.pdp == "" {
		s.pdp = pdptest.Start(t, pdptest.Bundle(bundle)).URL
	}
	binding, err := newBinding()
	s.must(err)
	keep := &http.Client{Transport: keeping{s}}
	pdp, err := authzenclient.New(s.pdp, append([]authzenclient.Option{authzenclient.WithHTTPClient(keep), authzenclient.WithTimeout(time.Minute), authzenclient.WithRetries(0), authzenclient.WithBreaker(0, 0)}, set.client...)...)
	s.must(err)
	server := s.server()
	if set.extend != nil {
		set.extend(server)
	}
	server.AddReceivingMiddleware(s.effects)
	server.AddReceivingMiddleware(sdkpep.Middleware(binding, pdp, set.tools, set.options...))
	var handler http.Handler = mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{Stateless: set.modern})
	if !set.bare {
		handler = sdkpep.Strict(handler, 1<<16)
	}
	h := httptest.NewServer(auth.RequireBearerToken(verify, nil)(handler))
	t.Cleanup(h.Close)
	s.url = h.URL
	return s
}

func (s *stage) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// verify takes the claims for the token.
func verify(_ context.Context, token string, _ *http.Request) (*auth.TokenInfo, error) {
	info := auth.TokenInfo{Expiration: time.Now().Add(time.Hour)}
	if life, err := time.ParseDuration(strings.TrimPrefix(token, "brief-")); err == nil {
		info.Expiration, token = time.Now().Add(life), "alice"
	}
	if token == "unknown" {
		return &info, nil // a verifier that keeps no claims
	}
	claims, err := evaluation.ParseWithNulls([]byte(`{"sub":"`+token+`","client_id":"agent","aud":["https://other.example.com","`+resource+`"],"iss":"https://idp"}`), evaluation.DefaultLimits())
	if err != nil {
		return nil, fmt.Errorf("%w: %w", auth.ErrInvalidToken, err)
	}
	return sdkpep.WithClaims(info, claims), nil
}

// briefly asks with tokens of alice that end soon, until one lasts long enough for the answer to begin.
func briefly(t *testing.T, ask func(token string) (begun bool)) {
	t.Helper()
	for life := 50 * time.Millisecond; !ask("brief-" + life.String()); life *= 2 {
		if life > time.Minute {
			t.Fatal("no token lasts long enough")
		}
	}
}

// server executes what it is asked to.
func (s *stage) server() *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ServerOptions{
		SubscribeHandler:   func(context.Context, *mcp.SubscribeRequest) error { return nil },
		UnsubscribeHandler: func(context.Context, *mcp.UnsubscribeRequest) error { return nil },
		CompletionHandler: func(context.Context, *mcp.CompleteRequest) (*mcp.CompleteResult, error) {
			return &mcp.CompleteResult{Completion: mcp.CompletionResultDetails{Values: []string{"a"}}}, nil
		},
		PageSize: 3, // the list has several pages
	})
	for name, schema := range schemas {
		server.AddTool(&mcp.Tool{Name: name, InputSchema: schema}, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			if strings.Contains(string(r.Params.Arguments), "fail") {
				return nil, fmt.Errorf("the secret is hunter2")
			}
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "ran " + name}}, StructuredContent: map[string]any{"secret": "hunter2", "open": 1}}, nil
		})
	}
	read := func(_ context.Context, r *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: r.Params.URI, Text: "a note"}}}, nil
	}
	server.AddResource(&mcp.Resource{URI: "mem://notes", Name: "notes"}, read)
	server.AddResource(&mcp.Resource{URI: "mem://secret", Name: "secret"}, read)
	server.AddResourceTemplate(&mcp.ResourceTemplate{URITemplate: "mem://notes/{id}", Name: "note"}, read)
	server.AddPrompt(&mcp.Prompt{Name: "summarise"}, func(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		return &mcp.GetPromptResult{}, nil
	})
	return server
}

// effects is the innermost middleware: a request that comes here has its effect.
func (s *stage) effects(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
		what := method
		if p, ok := r.GetParams().(*mcp.CallToolParamsRaw); ok {
			what += " " + p.Name + " " + string(p.Arguments)
		}
		if !strings.HasPrefix(method, "notifications/") { // they come when they come
			s.mu.Lock()
			s.executed = append(s.executed, what)
			s.mu.Unlock()
		}
		return next(ctx, method, r)
	}
}

// keeping is how the PDP is asked.
type keeping struct{ s *stage }

func (k keeping) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	k.s.mu.Lock()
	k.s.asked = append(k.s.asked, strings.TrimPrefix(r.URL.Path, "/access/v1/")+" "+string(body))
	k.s.mu.Unlock()
	r.Body = io.NopCloser(bytes.NewReader(body))
	return http.DefaultTransport.RoundTrip(r)
}

// taken are what was executed and asked since the last time; lists that the PEP itself reads are none.
func (s *stage) taken() (executed, asked []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	executed, asked = s.executed, s.asked
	s.executed, s.asked = nil, nil
	return executed, asked
}

func (s *stage) effect(what string) bool {
	executed, _ := s.taken()
	return slices.ContainsFunc(executed, func(e string) bool { return strings.HasPrefix(e, what) })
}

// client is the SDK's own, with a token.
func (s *stage) client(token string) (*mcp.ClientSession, error) {
	transport := &mcp.StreamableClientTransport{Endpoint: s.url, HTTPClient: &http.Client{Transport: bearer(token)}, DisableStandaloneSSE: true, MaxRetries: -1}
	session, err := mcp.NewClient(&mcp.Implementation{Name: "client", Version: "1"}, nil).Connect(s.t.Context(), transport, nil)
	if err == nil {
		s.t.Cleanup(func() { _ = session.Close() })
	}
	return session, err
}

type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}

// answer is a raw answer to a raw message of MCP 2026-07-28.
type answer struct {
	status int
	text   string
	ID     json.RawMessage `json:"id"`
	Result json.RawMessage `json:"result"`
	Error  struct {
		Code    int             `json:"code"`
		Message string          `json:"message"`
		Data    json.RawMessage `json:"data"`
	} `json:"error"`
}

const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"raw","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}`

// send sends a message as it is.
func (s *stage) send(token, method, name, body string, headers ...string) (a answer) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.url, strings.NewReader(body))
	s.must(err)
	for name, value := range map[string]string{
		"Authorization": "Bearer " + token, "Content-Type": "application/json", "Accept": "application/json, text/event-stream",
		"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": method, "Mcp-Name": name,
	} {
		if value != "" {
			r.Header.Set(name, value)
		}
	}
	for n := 0; n+1 < len(headers); n += 2 {
		if r.Header.Del(headers[n]); headers[n+1] != "" {
			r.Header.Add(headers[n], headers[n+1])
		}
	}
	w, err := (&http.Client{Timeout: time.Minute}).Do(r)
	s.must(err)
	defer func() { _ = w.Body.Close() }()
	text, err := io.ReadAll(w.Body)
	s.must(err)
	a.status, a.text = w.StatusCode, string(text)
	for line := range strings.Lines(string(text)) {
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			text = []byte(data)
		}
	}
	_ = json.Unmarshal(text, &a) // a text is no message
	return a
}

// call calls a tool with arguments, in a message of its own.
func (s *stage) call(token, tool, arguments string) answer {
	s.t.Helper()
	return s.send(token, "tools/call", tool, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"`+tool+`","arguments":`+arguments+`,`+meta+`}}`)
}

// kept is a log that requests write at once.
type kept struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (k *kept) Write(b []byte) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.all.Write(b)
}

func (k *kept) String() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.all.String()
}
