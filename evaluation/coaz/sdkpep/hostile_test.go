package sdkpep_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient"
	"policy-service/evaluation/coaz"
	"policy-service/evaluation/coaz/sdkpep"
	"policy-service/pdp/pdptest"
)

// Many calls at once: each that is executed was asked about with its own arguments, once, and none that is forbidden is.
func TestAtOnce(t *testing.T) {
	t.Parallel()
	s := open(t, setting{modern: true})
	const callers, calls = 8, 6
	var group sync.WaitGroup
	for n := range callers {
		group.Go(func() {
			for i := range calls {
				id := fmt.Sprintf("%d-%d", n, i)
				if i%3 == 2 {
					id = "kept"
				}
				if a := s.call("alice", "get_customer", `{"id":"`+id+`"}`); (a.Error.Code == 0) != (id != "kept") {
					t.Errorf("%s: %s", id, a.text)
				}
			}
		})
	}
	group.Wait()
	executed, asked := s.taken()
	ran := map[string]int{}
	for _, what := range executed {
		if strings.HasPrefix(what, "tools/call") {
			ran[what]++
		}
	}
	if len(ran) != callers*calls*2/3 || len(asked) != callers*calls {
		t.Errorf("%d were executed, %d asked about", len(ran), len(asked))
	}
	for what, times := range ran {
		id := what[strings.Index(what, `"id":`) : len(what)-1]
		about := slices.DeleteFunc(slices.Clone(asked), func(q string) bool { return !strings.Contains(q, `"type":"customer",`+id+`}`) })
		if times != 1 || len(about) != 1 || strings.Contains(what, "kept") {
			t.Errorf("%s: executed %d times, asked about by %v", what, times, about)
		}
	}
}

// A tool that the list hides from its caller has its mapping all the same, and the default question is not asked in its
// place: it is refused as one that does not exist.
func TestHiddenTool(t *testing.T) {
	t.Parallel()
	s := open(t, setting{modern: true, extend: func(server *mcp.Server) {
		server.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
			return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
				result, err := next(ctx, method, r)
				if list, ok := result.(*mcp.ListToolsResult); ok && err == nil {
					list.Tools = slices.DeleteFunc(list.Tools, func(t *mcp.Tool) bool { return t.Name == "get_customer" })
				}
				return result, err
			}
		})
	}})
	hidden, none := s.call("alice", "get_customer", `{"id":"kept"}`), s.call("alice", "never", `{"id":"kept"}`)
	if executed, asked := s.taken(); len(asked) > 0 || slices.ContainsFunc(executed, func(e string) bool { return strings.HasPrefix(e, "tools/call") }) {
		t.Errorf("executed %v, asked %v", executed, asked)
	}
	if hidden.Error.Code != -32602 || hidden.text != none.text {
		t.Errorf("hidden %s, none %s", hidden.text, none.text)
	}
	if a := s.call("alice", "weather", `{}`); a.Error.Code != 0 || !s.effect("tools/call weather") {
		t.Errorf("%s", a.text)
	}
}

// Where the list fails, the declaration of a tool is not known, and it is not called.
func TestListFails(t *testing.T) {
	t.Parallel()
	s := open(t, setting{modern: true, extend: func(server *mcp.Server) {
		server.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
			return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
				if method == "tools/list" {
					return nil, errors.New("hunter2")
				}
				return next(ctx, method, r)
			}
		})
	}})
	a := s.call("alice", "weather", `{}`)
	if executed, asked := s.taken(); a.Error.Code != -32602 || strings.Contains(a.text, "hunter2") || len(asked) > 0 || slices.Contains(executed, "tools/call weather {}") {
		t.Errorf("%s, executed %v, asked %v", a.text, executed, asked)
	}
}

// direct is the middleware by itself, before a handler that is called with what alice asks of the tool masked.
func direct(t *testing.T, next mcp.MethodHandler, options ...sdkpep.Option) func(context.Context) (mcp.Result, error) {
	t.Helper()
	binding, err := coaz.New(coaz.Options{Resource: resource})
	if err != nil {
		t.Fatal(err)
	}
	pdp, err := authzenclient.New(pdptest.Start(t, pdptest.Bundle(bundle)).URL)
	if err != nil {
		t.Fatal(err)
	}
	definition, err := sdkpep.Definition(&mcp.Tool{Name: "masked", InputSchema: schemas["masked"]})
	if err != nil {
		t.Fatal(err)
	}
	info, err := verify(t.Context(), "alice", nil)
	if err != nil {
		t.Fatal(err)
	}
	tools := func(string) (evaluation.Object, bool) { return definition, true }
	handle := sdkpep.Middleware(binding, pdp, tools, options...)(next)
	return func(ctx context.Context) (mcp.Result, error) {
		return handle(ctx, "tools/call", &mcp.CallToolRequest{Params: &mcp.CallToolParamsRaw{Name: "masked"}, Extra: &mcp.RequestExtra{TokenInfo: info}})
	}
}

// A handler that is given up, and returns the result as it came, has not changed it.
func TestResultOfACallThatIsGivenUp(t *testing.T) {
	t.Parallel()
	raw := &mcp.CallToolResult{StructuredContent: map[string]any{"secret": "hunter2"}}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	call := direct(t, func(context.Context, string, mcp.Request) (mcp.Result, error) { return raw, nil },
		sdkpep.WithResultHandler("redact", func(_ context.Context, _ evaluation.Obligation, r mcp.Result) (mcp.Result, error) {
			cancel()
			return r, nil
		}))
	if result, err := call(ctx); result != nil || code(err) != -32603 {
		t.Errorf("%v, %v", result, err)
	}
	ran := false
	call = direct(t, func(context.Context, string, mcp.Request) (mcp.Result, error) { ran = true; return raw, nil })
	if result, err := call(ctx); result != nil || code(err) != -32603 || ran {
		t.Errorf("given up before: %v, %v, executed %v", result, err, ran)
	}
}

// The error of a call may hold the very value that is to be taken out of its result: it goes nowhere.
func TestErrorThatIsWithheldIsNotLogged(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	call := direct(t, func(context.Context, string, mcp.Request) (mcp.Result, error) {
		return nil, errors.New("hunter2 has no account")
	}, sdkpep.WithLogger(slog.New(slog.NewTextHandler(&log, nil))), sdkpep.WithResultHandler("redact", func(_ context.Context, _ evaluation.Obligation, r mcp.Result) (mcp.Result, error) {
		return r, nil
	}))
	if result, err := call(t.Context()); result != nil || code(err) != -32603 || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("%v, %v", result, err)
	}
	if text := log.String(); !strings.Contains(text, "withheld") || strings.Contains(text, "hunter2") {
		t.Errorf("the log says %s", text)
	}
}

// Without a token the PDP is not asked, and nothing is executed, by whatever transport a request came.
func TestNobody(t *testing.T) {
	t.Parallel()
	s := open(t, setting{})
	binding, err := coaz.New(coaz.Options{Resource: resource})
	s.must(err)
	pdp, err := authzenclient.New(s.pdp)
	s.must(err)
	handle := sdkpep.Middleware(binding, pdp, func(string) (o evaluation.Object, ok bool) { return o, false })(func(_ context.Context, method string, _ mcp.Request) (mcp.Result, error) {
		return nil, errors.New("executed: " + method)
	})
	for name, extra := range map[string]*mcp.RequestExtra{"nothing": nil, "no token": {}, "no claims": {TokenInfo: &auth.TokenInfo{UserID: "alice"}}} {
		for method, r := range map[string]mcp.Request{
			"tools/call":               &mcp.CallToolRequest{Params: &mcp.CallToolParamsRaw{Name: "weather"}, Extra: extra},
			"tools/list":               &mcp.ListToolsRequest{Params: &mcp.ListToolsParams{}, Extra: extra},
			"prompts/get":              &mcp.GetPromptRequest{Extra: extra},
			"resources/templates/list": &mcp.ListResourceTemplatesRequest{Params: &mcp.ListResourceTemplatesParams{}, Extra: extra},
		} {
			if result, err := handle(t.Context(), method, r); result != nil || code(err) != -32602 {
				t.Errorf("%s, %s: %v, %v", name, method, result, err)
			}
		}
	}
}
