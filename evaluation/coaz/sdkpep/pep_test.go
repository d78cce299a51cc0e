package sdkpep_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient"
	"policy-service/evaluation/coaz"
	"policy-service/evaluation/coaz/sdkpep"
	"policy-service/obligations"
	"policy-service/pdp/pdptest"
)

// code is that of a client's error.
func code(err error) int64 {
	var wire *jsonrpc.Error
	if errors.As(err, &wire) {
		return wire.Code
	}
	return 0
}

// The SDK's client, in each era: what is permitted is executed, what is denied is not, and each method is asked about by
// its mapping.
func TestBothEras(t *testing.T) {
	t.Parallel()
	for _, era := range []struct {
		name, version string
		modern        bool
	}{{"legacy", "2025-11-25", false}, {"modern", "2026-07-28", true}} {
		t.Run(era.name, func(t *testing.T) {
			s := open(t, setting{modern: era.modern})
			c, err := s.client("alice")
			s.must(err)
			if got := c.InitializeResult().ProtocolVersion; got != era.version {
				t.Fatalf("this is %s", got)
			}
			if _, err := s.client("bob"); err == nil {
				t.Error("bob connects")
			}
			s.taken()
			ctx := t.Context()
			call := func(name string, arguments any) func() error {
				return func() error {
					_, err := c.CallTool(ctx, &mcp.CallToolParams{Name: name, Arguments: arguments})
					return err
				}
			}
			of := func(_ any, err error) error { return err }
			server := func(action string) string {
				return ask("evaluation", "identity", "alice", action, "mcp_server", resource)
			}
			for name, test := range map[string]struct {
				do    func() error
				code  int64
				asked string
			}{
				"tools/list":               {func() error { return of(c.ListTools(ctx, nil)) }, 0, server("tools/list")},
				"resources/list":           {func() error { return of(c.ListResources(ctx, nil)) }, 0, server("resources/list")},
				"resources/templates/list": {func() error { return of(c.ListResourceTemplates(ctx, nil)) }, 0, server("resources/templates/list")},
				"prompts/list":             {func() error { return of(c.ListPrompts(ctx, nil)) }, 0, server("prompts/list")},
				"resources/read":           {func() error { return of(c.ReadResource(ctx, &mcp.ReadResourceParams{URI: "mem://notes"})) }, 0, ask("evaluation", "identity", "alice", "resources/read", "resource", "mem://notes")},
				"prompts/get":              {func() error { return of(c.GetPrompt(ctx, &mcp.GetPromptParams{Name: "summarise"})) }, 0, ask("evaluation", "identity", "alice", "prompts/get", "prompt", "summarise")},
				"completion/complete": {func() error {
					return of(c.Complete(ctx, &mcp.CompleteParams{Ref: &mcp.CompleteReference{Type: "ref/prompt", Name: "summarise"}, Argument: mcp.CompleteParamsArgument{Name: "a"}}))
				}, 0, ask("evaluation", "identity", "alice", "completion/complete", "prompt", "summarise")},
				"tools/call weather {}":            {call("weather", map[string]any{}), 0, ask("evaluation", "identity", "alice", "tools/call", "tool", "weather")},
				`tools/call get_customer {"id":"c`: {call("get_customer", map[string]any{"id": "c"}), 0, ask("evaluation", "identity", "alice", "get_customer", "customer", "c")},
				`tools/call get_customer {"id":"k`: {call("get_customer", map[string]any{"id": "kept"}), -32001, ask("evaluation", "identity", "alice", "get_customer", "customer", "kept")},
				"tools/call copy_object":           {call("copy_object", map[string]any{"source": "/a", "destination": "/archive"}), -32001, `evaluations {"subject":{"type":"identity","id":"alice"}`},
				"tools/call malformed":             {call("malformed", map[string]any{}), -32602, ""},
			} {
				err := test.do()
				did, asked := s.taken()
				if code(err) != test.code || (err == nil) != (test.code == 0) {
					t.Errorf("%s: %v, want code %d", name, err, test.code)
				}
				if had := slices.ContainsFunc(did, func(e string) bool { return strings.HasPrefix(e, name) }); had != (test.code == 0) {
					t.Errorf("%s: executed %v", name, did)
				}
				if len(asked) > 1 || len(asked) == 1 && (test.asked == "" || !strings.HasPrefix(asked[0], test.asked)) || len(asked) == 0 && test.asked != "" {
					t.Errorf("%s: asked %v, want %s", name, asked, test.asked)
				}
			}
		})
	}
}

// ask begins a question: subject, action and resource, with the agent that the defaults name.
func ask(api, subjectType, subject, action, resourceType, id string) string {
	return fmt.Sprintf(`%s {"subject":{"type":"%s","id":"%s"},"action":{"name":"%s"},"resource":{"type":"%s","id":"%s"},"context":{"agent":"agent"`, api, subjectType, subject, action, resourceType, id)
}

// Methods that only sessions have, and those that pass without asking.
func TestLegacyOnly(t *testing.T) {
	t.Parallel()
	s := open(t, setting{})
	c, err := s.client("alice")
	s.must(err)
	s.taken()
	ctx := t.Context()
	for method, do := range map[string]func() error{
		//lint:ignore SA1019 servers have it for a year yet, so it is to be decided about
		"logging/setLevel":      func() error { return c.SetLoggingLevel(ctx, &mcp.SetLoggingLevelParams{Level: "info"}) },
		"resources/subscribe":   func() error { return c.Subscribe(ctx, &mcp.SubscribeParams{URI: "mem://notes"}) },
		"resources/unsubscribe": func() error { return c.Unsubscribe(ctx, &mcp.UnsubscribeParams{URI: "mem://notes"}) },
	} {
		s.must(do())
		if executed, asked := s.taken(); !slices.Equal(executed, []string{method}) || len(asked) != 1 || !strings.Contains(asked[0], method) {
			t.Errorf("%s: executed %v, asked %v", method, executed, asked)
		}
	}
	if err := c.Subscribe(ctx, &mcp.SubscribeParams{URI: "mem://secret"}); code(err) != -32001 || s.effect("resources/subscribe") {
		t.Errorf("a secret: %v", err)
	}
	s.must(c.Ping(ctx, nil))
	if executed, asked := s.taken(); !slices.Equal(executed, []string{"ping"}) || len(asked) > 0 {
		t.Errorf("ping: executed %v, asked %v", executed, asked)
	}
}

// A subscription asks about the server, and about each resource that it names.
func TestListen(t *testing.T) {
	t.Parallel()
	s := open(t, setting{modern: true})
	listen := func(token, uri string) answer {
		return s.send(token, "subscriptions/listen", "", `{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"notifications":{"resourceSubscriptions":["`+uri+`"]},`+meta+`}}`)
	}
	if a := listen("alice", "mem://secret"); a.Error.Code != -32001 || s.effect("subscriptions/listen") {
		t.Errorf("a secret: %+v", a)
	}
	if a := listen("bob", "mem://notes"); a.Error.Code != -32001 || s.effect("subscriptions/listen") {
		t.Errorf("bob: %+v", a)
	}
	briefly(t, func(token string) bool {
		a := listen(token, "mem://notes") // it ends, with the token
		executed, asked := s.taken()
		return a.status == 200 && len(executed) == 1 && len(asked) == 2
	})
	// It asks nothing after a deny, and no listener has it ask without end.
	uris := func(n int) string { return "mem://secret" + strings.Repeat(`","mem://notes`, n-1) }
	if a := listen("alice", ""); a.Error.Code != -32602 || s.effect("subscriptions/listen") {
		t.Errorf("of no resource: %+v", a)
	}
	for n, want := range map[int]struct{ code, asked int }{64: {-32001, 2}, 65: {-32602, 0}} {
		a := listen("alice", uris(n))
		if executed, asked := s.taken(); a.Error.Code != want.code || len(executed) > 0 || len(asked) != want.asked {
			t.Errorf("%d: %+v, executed %v, asked %v", n, a, executed, asked)
		}
	}
	listen("bob", "mem://notes")
	if executed, asked := s.taken(); len(executed) > 0 || len(asked) != 1 {
		t.Errorf("bob: executed %v, asked %v", executed, asked)
	}
}

// Definitions may say what the SDK's list cannot: the older dialect, whose denial has another code.
func TestDefinitions(t *testing.T) {
	t.Parallel()
	const sep = `{"name":"weather","coaz":true,"inputSchema":{"type":"object","x-coaz-mapping":{"resource":{"type":"account","id":"$.properties['id']"},"subject":{"type":"user","id":"$.token['sub']"},"context":{"agent":"$.token['client_id']"},"action":{"name":"close_account"}}}}`
	definition, err := sdkpep.Definition(json.RawMessage(sep))
	if err != nil {
		t.Fatal(err)
	}
	tools := func(name string) (evaluation.Object, bool) { return definition, name == "weather" }
	s := open(t, setting{modern: true, tools: tools})
	for id, want := range map[string]int{"open": 0, "frozen": -32401} {
		a := s.call("alice", "weather", `{"id":"`+id+`"}`)
		executed, asked := s.taken()
		if a.Error.Code != want || (len(executed) == 1) != (want == 0) || len(asked) != 1 || !strings.HasPrefix(asked[0], ask("evaluation", "user", "alice", "close_account", "account", id)) {
			t.Errorf("%s: %+v, executed %v, asked %v", id, a, executed, asked)
		}
	}
	if a := s.call("alice", "weather", `{}`); a.Error.Code != -32602 || s.effect("tools/call") {
		t.Errorf("no id: %+v", a)
	}
	// The default is not asked in the place of a declaration that nobody gave.
	if a := s.call("alice", "get_customer", `{"id":"kept"}`); a.Error.Code != -32602 || s.effect("tools/call") {
		t.Errorf("%+v", a)
	}
	for _, damaged := range []string{``, `7`, `{"name":"x","name":"x"}`, `{"name":"x","inputSchema":7}`, `{"name":"x","inputSchema":{"x-authzen-mapping":{"a":1,"a":2}}}`} {
		if d, err := sdkpep.Definition(json.RawMessage(damaged)); err == nil {
			t.Errorf("%s is %v", damaged, d)
		}
	}
}

// A mapping of the operator is for methods that have no default, also the server's own; a request of the server's own
// that is called like a notification is none.
func TestOwnMethods(t *testing.T) {
	t.Parallel()
	binding, err := coaz.New(coaz.Options{})
	if err != nil {
		t.Fatal(err)
	}
	text, err := evaluation.ParseWithNulls([]byte(`{"evaluation":{"subject":{"type":"identity","id":"$token.sub"},"action":{"name":"search"},"resource":{"type":"index","id":"$params.query"}}}`), evaluation.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	mapping, err := binding.Compile(text, coaz.AuthZEN)
	if err != nil {
		t.Fatal(err)
	}
	type params struct {
		mcp.ParamsBase
		Query string `json:"query"`
	}
	type result struct{ mcp.ResultBase }
	s := open(t, setting{modern: true, options: []sdkpep.Option{sdkpep.WithMapping("acme/search", mapping)}, extend: func(server *mcp.Server) {
		for _, method := range []string{"acme/search", "acme/other", "notifications/acme", "ping/x"} {
			err := mcp.AddReceivingCustomMethod(server, method, func(context.Context, *mcp.ServerSession, *params) (*result, error) { return &result{}, nil })
			if err != nil {
				t.Fatal(err)
			}
		}
	}})
	for method, want := range map[string]int{"acme/search": 0, "acme/other": -32001, "notifications/acme": -32001, "ping/x": -32001} {
		a := s.send("alice", method, "", `{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":{"query":"q",`+meta+`}}`)
		if executed, asked := s.taken(); a.Error.Code != want || (len(executed) > 0) != (want == 0) || (len(asked) > 0) != (want == 0) {
			t.Errorf("%s: %+v, executed %v, asked %v", method, a, executed, asked)
		}
	}
	if a := s.send("bob", "acme/search", "", `{"jsonrpc":"2.0","id":1,"method":"acme/search","params":{"query":"q",`+meta+`}}`); a.Error.Code != -32001 || s.effect("acme/search") {
		t.Errorf("bob: %+v", a)
	}
	// A method that passes otherwise is asked about as well.
	s = open(t, setting{options: []sdkpep.Option{sdkpep.WithMapping("ping", mapping)}})
	c, err := s.client("alice")
	s.must(err)
	s.taken()
	if err := c.Ping(t.Context(), nil); code(err) != -32602 || s.effect("ping") { // it has no query
		t.Errorf("ping: %v", err)
	}
}

// The PDP decides: whatever it says but a clear yes executes nothing.
func TestFailsClosed(t *testing.T) {
	t.Parallel()
	const yes, twice = `{"decision":true}`, `{"evaluations":[{"decision":true},{"decision":true}]}`
	says := func(status int, body string, headers ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("X-Request-ID", r.Header.Get("X-Request-ID"))
			for n := 0; n+1 < len(headers); n += 2 {
				w.Header().Set(headers[n], headers[n+1])
			}
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
		}
	}
	for name, test := range map[string]struct {
		pdp  http.HandlerFunc
		code int // of get_customer
		both int // of copy_object, which asks two questions
	}{
		"yes":               {says(200, yes), 0, -32603},
		"yes to both":       {says(200, twice), -32603, 0},
		"no":                {says(200, `{"decision":false}`), -32001, -32603},
		"no to one":         {says(200, `{"evaluations":[{"decision":true},{"decision":false}]}`), -32603, -32001},
		"no to the first":   {says(200, `{"evaluations":[{"decision":false}]}`), -32603, -32001},
		"fewer":             {says(200, `{"evaluations":[{"decision":true}]}`), -32603, -32603},
		"more":              {says(200, `{"evaluations":[{"decision":true},{"decision":true},{"decision":true}]}`), -32603, -32603},
		"one odd":           {says(200, `{"evaluations":[{"decision":true},{"decision":"true"}]}`), -32603, -32603},
		"one refused":       {says(200, `{"evaluations":[{"decision":true},{"decision":false,"context":{"error":{"status":400}}}]}`), -32603, -32602},
		"text":              {says(200, `{"decision":"true"}`), -32603, -32603},
		"twice":             {says(200, `{"decision":false,"decision":true}`), -32603, -32603},
		"empty":             {says(200, ``), -32603, -32603},
		"HTML":              {says(200, yes, "Content-Type", "text/html"), -32603, -32603},
		"another's":         {says(200, yes, "X-Request-ID", "other"), -32603, -32603},
		"201":               {says(201, yes), -32603, -32603},
		"204":               {says(204, ``), -32603, -32603},
		"302":               {says(302, yes, "Location", "/"), -32603, -32603},
		"400":               {says(400, yes), -32602, -32602},
		"401":               {says(401, yes), -32603, -32603},
		"403":               {says(403, yes), -32603, -32603},
		"404":               {says(404, yes), -32603, -32603},
		"413":               {says(413, yes), -32602, -32602},
		"422":               {says(422, yes), -32602, -32602},
		"429":               {says(429, yes, "Retry-After", "7"), -32603, -32603},
		"500":               {says(500, yes), -32603, -32603},
		"503":               {says(503, yes), -32603, -32603},
		"hangs up":          {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, -32603, -32603},
		"obliges":           {says(200, `{"decision":true,"context":{"obligations":[{"id":"a","type":"log"}]}}`), -32001, -32603},
		"obliges of one":    {says(200, `{"evaluations":[{"decision":true},{"decision":true,"context":{"obligations":[{"id":"a","type":"log"}]}}]}`), -32603, -32001},
		"obliges, unclear":  {says(200, `{"decision":true,"context":{"obligations":7}}`), -32001, -32603},
		"obliges to both":   {says(200, `{"evaluations":[{"decision":true},{"decision":true}],"context":{"obligations":[{"id":"a","type":"log"}]}}`), -32603, -32001},
		"too long":          {says(200, yes+strings.Repeat(" ", 4<<20)), -32603, -32603},
		"secret in a no":    {says(200, `{"decision":false,"context":{"reason":"hunter2","reason_admin":"hunter2","error_detail":"hunter2"}}`), -32001, -32603},
		"secret in a fault": {says(500, `{"detail":"hunter2"}`), -32603, -32603},
		"secret in a 400":   {says(400, `{"detail":"hunter2"}`), -32602, -32602},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := httptest.NewServer(test.pdp)
			t.Cleanup(h.Close)
			var log kept
			s := open(t, setting{modern: true, pdp: h.URL, options: []sdkpep.Option{sdkpep.WithLogger(slog.New(slog.NewTextHandler(&log, nil)))}})
			defer func() {
				undecided := 0
				for _, code := range []int{test.code, test.both} {
					if code == -32603 || code == -32602 {
						undecided++
					}
				}
				if got := strings.Count(log.String(), `level=WARN msg="no decision came" reason=`); got != undecided {
					t.Errorf("%d events, want %d:\n%s", got, undecided, log.String())
				}
			}()
			for tool, want := range map[string]int{"get_customer": test.code, "copy_object": test.both} {
				a := s.call("alice", tool, `{"id":"c","source":"/a","destination":"/b"}`)
				executed, _ := s.taken()
				ran := slices.ContainsFunc(executed, func(e string) bool { return strings.HasPrefix(e, "tools/call") })
				if a.Error.Code != want || ran != (want == 0) || string(a.ID) != "7" || (a.Result != nil) != (want == 0) {
					t.Errorf("%s: %s, executed %v", tool, a.text, executed)
				}
				if want != 0 && strings.Contains(a.text, "hunter2") {
					t.Errorf("%s: the client is told %s", tool, a.text)
				}
				if name == "429" && !strings.Contains(string(a.Error.Data), `"retry_after":7`) {
					t.Errorf("%s: %s", tool, a.text)
				}
			}
		})
	}
	t.Run("never answers", func(t *testing.T) {
		t.Parallel()
		h := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // otherwise nobody notices that the PEP hangs up
			<-r.Context().Done()
		}))
		t.Cleanup(h.Close)
		s := open(t, setting{modern: true, pdp: h.URL, client: []authzenclient.Option{authzenclient.WithTimeout(50 * time.Millisecond)}})
		for _, tool := range []string{"get_customer", "copy_object", "weather"} {
			if a := s.call("alice", tool, `{"id":"c","source":"/a","destination":"/b"}`); a.Error.Code != -32603 || a.Result != nil || s.effect("tools/call") {
				t.Errorf("%s: %s", tool, a.text)
			}
		}
	})
	t.Run("nobody there", func(t *testing.T) {
		s := open(t, setting{modern: true, pdp: "http://127.0.0.1:1"})
		for method, body := range map[string]string{"tools/list": `{` + meta + `}`, "server/discover": `{` + meta + `}`} {
			if a := s.send("alice", method, "", `{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":`+body+`}`); a.Error.Code != -32603 || a.Result != nil || s.effect(method) {
				t.Errorf("%s: %s", method, a.text)
			}
		}
	})
}

// What the client is told: the author's sentence for users, what of a mapping fails, and no value.
func TestWhatIsTold(t *testing.T) {
	t.Parallel()
	s := open(t, setting{modern: true})
	for name, test := range map[string]struct {
		a       answer
		code    int
		says    string
		data    string
		asked   bool
		without string
	}{
		"the author's sentence":  {s.call("alice", "get_customer", `{"id":"kept"}`), -32001, "Access denied: Keep this customer.", `{"type":"authorization_denied","reason":"Keep this customer."}`, true, ""},
		"nothing":                {s.call("bob", "weather", `{}`), -32001, "Access denied", `{"type":"authorization_denied"}`, true, "unknown"},
		"people could approve":   {s.call("alice", "asked", `{}`), -32001, "Access denied", `{"type":"authorization_denied","suggestion":"ask for approval"}`, true, "approval_required"},
		"a member is missing":    {s.call("alice", "get_customer", `{"other":"hunter2"}`), -32602, "/evaluation/resource/id", `{"type":"mapping_error"}`, false, "hunter2"},
		"a mapping is malformed": {s.call("alice", "malformed", `{"a":"hunter2"}`), -32602, "/evaluation/action/name", `{"type":"mapping_error"}`, false, "hunter2"},
		"a mapping is null":      {s.call("alice", "null", `{}`), -32602, "mapping error", `{"type":"mapping_error"}`, false, ""},
		"another subject":        {s.call("alice", "someone", `{"who":"hunter2"}`), -32602, "/evaluation/subject/id", `{"type":"mapping_error"}`, false, "hunter2"},
		"a reserved name":        {s.call("alice", "weather", `{"__entity":"hunter2"}`), -32602, "__entity", `{"type":"mapping_error"}`, false, "hunter2"},
		"too deep":               {s.call("alice", "weather", strings.Repeat(`{"hunter2":`, 30)+"1"+strings.Repeat("}", 30)), -32602, "deep", `{"type":"mapping_error"}`, false, ""},
		"no claims":              {s.call("unknown", "weather", `{}`), -32602, "claim", `{"type":"mapping_error"}`, false, ""},
		"no claims, own mapping": {s.call("unknown", "get_customer", `{"id":"c"}`), -32602, "/evaluation/subject/id", `{"type":"mapping_error"}`, false, ""},
	} {
		if test.a.Error.Code != test.code || !strings.Contains(test.a.Error.Message, test.says) || string(test.a.Error.Data) != test.data || string(test.a.ID) != "7" {
			t.Errorf("%s: %s", name, test.a.text)
		}
		if test.without != "" && strings.Contains(test.a.text, test.without) {
			t.Errorf("%s says %q: %s", name, test.without, test.a.text)
		}
	}
	if s.effect("tools/call") {
		t.Error("something was executed")
	}
}

// Obligations are discharged before and after; what cannot be done to a result withholds it.
func TestObligations(t *testing.T) {
	t.Parallel()
	log := 0
	handlers := obligations.Handlers{"log": func(context.Context, evaluation.Obligation) error { log++; return nil }}
	redact := func(_ context.Context, o evaluation.Obligation, r mcp.Result) (mcp.Result, error) {
		result, ok := r.(*mcp.CallToolResult)
		if _, named := o.Properties.Get("fields"); !ok || !named {
			return nil, errors.New("this is no result of a tool")
		}
		return &mcp.CallToolResult{Content: result.Content, StructuredContent: map[string]any{"open": 1}}, nil
	}
	fails := func(context.Context, evaluation.Obligation, mcp.Result) (mcp.Result, error) {
		return nil, errors.New("hunter2")
	}
	panics := func(context.Context, evaluation.Obligation, mcp.Result) (mcp.Result, error) { panic("hunter2") }
	panicking := obligations.Handlers{"log": func(context.Context, evaluation.Obligation) error { panic("hunter2") }}
	nothing := func(context.Context, evaluation.Obligation, mcp.Result) (mcp.Result, error) { return nil, nil }
	for name, test := range map[string]struct {
		options   []sdkpep.Option
		arguments string
		masked    int
		logged    int
		receipt   string // of masked
	}{
		"without handlers": {nil, `{}`, -32001, -32001, ""},
		"with handlers":    {[]sdkpep.Option{sdkpep.WithHandlers(handlers), sdkpep.WithResultHandler("redact", redact)}, `{}`, 0, 0, `"status":"discharged"`},
		"that fail":        {[]sdkpep.Option{sdkpep.WithHandlers(handlers), sdkpep.WithResultHandler("redact", fails)}, `{}`, -32603, 0, `"status":"failed","detail":"its handler promised it, and it was not done"`},
		"of no result":     {[]sdkpep.Option{sdkpep.WithHandlers(handlers), sdkpep.WithResultHandler("redact", nothing)}, `{}`, -32603, 0, `"status":"failed"`},
		"that panic":       {[]sdkpep.Option{sdkpep.WithHandlers(panicking), sdkpep.WithResultHandler("redact", panics)}, `{}`, -32603, -32001, `"status":"failed","detail":"its handler promised it, and it was not done"`},
		"of nothing":       {[]sdkpep.Option{sdkpep.WithHandlers(nil), sdkpep.WithResultHandler("redact", nil)}, `{}`, -32001, -32001, ""},
		"tool that fails":  {[]sdkpep.Option{sdkpep.WithHandlers(handlers), sdkpep.WithResultHandler("redact", redact)}, `{"fail":1}`, -32603, 0, `"status":"discharged"`},
	} {
		t.Run(name, func(t *testing.T) {
			log = 0
			s := open(t, setting{modern: true, options: test.options})
			a := s.call("alice", "masked", test.arguments)
			executed, asked := s.taken()
			if a.Error.Code != test.masked || strings.Contains(a.text, "hunter2") || (len(executed) > 0) != (test.masked != -32001) && test.masked == 0 {
				t.Errorf("masked: %s, executed %v", a.text, executed)
			}
			if test.masked == 0 && !strings.Contains(a.text, "ran masked") {
				t.Errorf("masked: %s", a.text)
			}
			if last := asked[len(asked)-1]; (len(asked) > 1) != (test.receipt != "") || !strings.Contains(last, test.receipt) {
				t.Errorf("the PDP was told %v", asked)
			}
			a = s.call("alice", "logged", `{}`)
			if a.Error.Code != test.logged || (log == 1) != (test.logged == 0) || s.effect("tools/call") != (test.logged == 0) {
				t.Errorf("logged: %s, %d times", a.text, log)
			}
		})
	}
}

// One permit is for one message.
func TestEachIsAsked(t *testing.T) {
	t.Parallel()
	s := open(t, setting{modern: true})
	for range 3 {
		s.call("alice", "get_customer", `{"id":"c"}`)
	}
	if _, asked := s.taken(); len(asked) != 3 {
		t.Errorf("asked %v", asked)
	}
}

// The mapping sees what the handler gets: empty arguments and none are two things, and every number is exact.
func TestParamsAreExact(t *testing.T) {
	t.Parallel()
	s := open(t, setting{modern: true})
	for arguments, want := range map[string]string{
		`{"amount":9007199254740993}`: `"amount":9007199254740993`, `{"amount":1e2}`: `"amount":1e2`, `{"amount":0.1}`: `"amount":0.1`,
		`{"amount":"<&> é/"}`:             `"amount":"<&> é/"`,
		`{"amount":[[],{},"",{"a":[1]}]}`: `"amount":[[],{},"",{"a":[1]}]`,
	} {
		a := s.call("alice", "pays", arguments)
		if executed, asked := s.taken(); a.Error.Code != 0 || len(asked) != 1 || !strings.Contains(asked[0], want) || executed[len(executed)-1] != "tools/call pays "+arguments {
			t.Errorf("%s: %s, executed %v, asked %v", arguments, a.text, executed, asked)
		}
	}
	const counts = `{"evaluation":{"action":{"name":"x"},"resource":{"type":"x","id":"$has(params.arguments) ? 'has ' + string(size(params.arguments)) : 'none'"}}}`
	s = open(t, setting{modern: true, extend: func(server *mcp.Server) {
		server.AddTool(&mcp.Tool{Name: "counts", InputSchema: declares(counts)}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{}, nil
		})
	}})
	for member, want := range map[string]string{`"arguments":{},`: "has 0", `"arguments":{"a":""},`: "has 1", ``: "none"} {
		a := s.send("alice", "tools/call", "counts", `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"counts",`+member+meta+`}}`)
		if _, asked := s.taken(); a.Error.Code != 0 || len(asked) != 1 || !strings.Contains(asked[0], `"id":"`+want+`"`) {
			t.Errorf("%s: %s, asked %v", member, a.text, asked)
		}
	}
}

// A tool whose definition changes is asked about by its present declaration.
func TestDefinitionChanges(t *testing.T) {
	t.Parallel()
	var server *mcp.Server
	s := open(t, setting{modern: true, extend: func(of *mcp.Server) { server = of }})
	run := func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{}, nil
	}
	for n, action := range []string{"get_customer", "put_customer", "get_customer"} {
		server.AddTool(&mcp.Tool{Name: "changes", InputSchema: declares(strings.Replace(figure, "get_customer", action, 1))}, run)
		a := s.call("alice", "changes", `{"id":"c"}`)
		if _, asked := s.taken(); a.Error.Code != 0 || len(asked) != 1 || !strings.Contains(asked[0], action) {
			t.Errorf("%d: %s, asked %v", n, a.text, asked)
		}
	}
	server.RemoveTools("changes")
	for _, who := range []string{"alice", "bob"} {
		a := s.call(who, "changes", `{"id":"c"}`)
		if _, asked := s.taken(); a.Error.Code != -32602 || len(asked) > 0 {
			t.Errorf("gone, %s: %s, asked %v", who, a.text, asked)
		}
	}
}

// A tool that is added later or changed is asked about as it is then, or cannot be called. Other spellings of a name are the
// names of other tools.
func TestToolsThatChange(t *testing.T) {
	t.Parallel()
	runs := func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "ran " + r.Params.Name}}}, nil
	}
	of := func(name, schema string) *mcp.Tool { return &mcp.Tool{Name: name, InputSchema: declares(schema)} }
	const closes = `{"evaluation":{"action":{"name":"close_account"},"resource":{"type":"account","id":"frozen"}}}`
	const reads = `{"evaluation":{"action":{"name":"read"},"resource":{"type":"account","id":"frozen"}}}`
	spellings := []string{"Ledger", "ledger ", " ledger", "l\u0435dger", "ledge\uff52", "ledger\u200b", "ledger\x00"}
	var server *mcp.Server
	extend := func(s *mcp.Server) {
		server = s
		s.AddTool(of("ledger", reads), runs)
		for _, name := range spellings {
			s.AddTool(&mcp.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)}, runs)
		}
	}
	call := func(s *stage, name string) (int64, bool) {
		c, err := s.client("alice")
		s.must(err)
		s.taken()
		_, err = c.CallTool(t.Context(), &mcp.CallToolParams{Name: name})
		if err != nil && code(err) == 0 {
			t.Fatal(err)
		}
		return code(err), s.effect("tools/call")
	}

	// The definitions are a list of the program's own, which a careless function searches.
	list := []*mcp.Tool{of("ledger", reads)}
	s := open(t, setting{extend: extend, tools: func(name string) (o evaluation.Object, ok bool) {
		for _, tool := range list {
			if strings.HasPrefix(strings.ToLower(strings.TrimSpace(name)), tool.Name[:1]) {
				d, err := sdkpep.Definition(tool)
				return d, err == nil
			}
		}
		return o, false
	}})
	if code, ran := call(s, "ledger"); code != 0 || !ran {
		t.Errorf("ledger: %d", code)
	}
	for _, name := range append(spellings, "late") {
		server.AddTool(of("late", closes), runs)
		if code, ran := call(s, name); code != -32602 || ran {
			t.Errorf("%q: %d, ran %t", name, code, ran)
		}
	}
	list[0].InputSchema = declares(closes)
	if code, ran := call(s, "ledger"); code != -32001 || ran {
		t.Errorf("ledger, changed in place: %d, ran %t", code, ran)
	}
	list = append(list, of("other", reads))
	server.AddTool(list[1], runs)
	if code, ran := call(s, "other"); code != 0 || !ran {
		t.Errorf("a tool that the list has since: %d, ran %t", code, ran)
	}

	// The server's own list.
	s = open(t, setting{extend: extend})
	if code, ran := call(s, "late"); code != -32602 || ran {
		t.Errorf("not there: %d, ran %t", code, ran)
	}
	server.AddTool(of("late", closes), runs)
	if code, ran := call(s, "late"); code != -32001 || ran {
		t.Errorf("added later: %d, ran %t", code, ran)
	}
	server.AddTool(of("late", reads), runs)
	if code, ran := call(s, "late"); code != 0 || !ran {
		t.Errorf("changed: %d, ran %t", code, ran)
	}
}

// The client is that for the tenant of a request. Where none can be chosen, nothing is executed, and no other tenant is asked.
func TestTenants(t *testing.T) {
	t.Parallel()
	files := map[string]string{"tenants/acme/kept.cedar": `@id("closed") forbid(principal, action == Action::"get_customer", resource);`, "tenants/open/none.cedar": "// nothing"}
	maps.Copy(files, bundle)
	pdp := pdptest.Start(t, pdptest.Bundle(files)).URL
	all, err := authzenclient.New(pdp)
	if err != nil {
		t.Fatal(err)
	}
	choose := sdkpep.WithClient(func(_ context.Context, r mcp.Request) (*authzenclient.Client, error) {
		switch tenant := r.GetExtra().Header.Get("X-Tenant"); tenant {
		case "lost":
			return nil, errors.New("swordfish")
		case "none":
			return nil, nil
		default:
			return all.ForTenant(tenant)
		}
	})
	s := open(t, setting{modern: true, pdp: pdp, options: []sdkpep.Option{choose}})
	for tenant, want := range map[string]int{"default": 0, "open": 0, "acme": -32001, "nobody": -32603, "": -32603, "../open": -32603, "lost": -32603, "none": -32603} {
		a := s.send("alice", "tools/call", "get_customer", `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"get_customer","arguments":{"id":"c"},`+meta+`}}`, "X-Tenant", tenant)
		executed, asked := s.taken()
		if a.Error.Code != want || slices.ContainsFunc(executed, func(e string) bool { return strings.HasPrefix(e, "tools/call") }) != (want == 0) || len(asked) > 0 || strings.Contains(a.text, "swordfish") {
			t.Errorf("%q: %s, executed %v, the other client asked %v", tenant, a.text, executed, asked)
		}
	}
}
