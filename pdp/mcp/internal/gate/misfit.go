package gate

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/mcp/internal/arguments"
	"policy-service/pdp/mcp/internal/ask"
	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/rpc"
	"policy-service/pdp/mcp/lock"
)

// misfit answers a call of a locked tool whose arguments do not fit its inputSchema. Is is false if they fit, or the tool is
// not locked: then the call goes on.
//
// Such a call is never forwarded, and nobody is asked to approve it. What is wrong with its arguments is told as the result of
// the tool, so that a model can mend them; but the schema is for those alone who may list the tool. Whoever may not is
// answered what all of his calls of it are: the PDP's refusal. So what a call that fits costs is not more for it.
func (x *exchange) misfit(ctx context.Context) (response rpc.Message, status int, is bool) {
	if x.tool == nil || x.tool.schema == nil {
		return response, 0, false
	}
	given := x.params.Get("arguments")
	if given != nil && given.Kind() != '{' {
		response, status = x.refused(invalid("the arguments are not an object"))
		return response, status, true
	}
	problems, err := x.tool.schema.Check(given)
	if err == nil && len(problems) == 0 {
		return response, 0, false
	}
	if refused := x.listable(ctx); refused != nil {
		response, status = x.refused(refused)
		return response, status, true
	}
	text := arguments.Text(problems)
	if err != nil {
		text = "The arguments cannot be held against the inputSchema of the tool: " + err.Error()
	}
	x.outcome = outcomeInvalid
	x.g.o.Logger.Info("arguments do not fit", "tool", x.tool.Name, "server", x.tool.Server, "problems", len(problems), "costly", errors.Is(err, arguments.ErrCostly), "principal", x.who.Key)
	return era.Response(x.request.Method, rpc.Answer(rpc.ID{}, toolError(text).Value()), era.Legacy, x.client.era), http.StatusOK, true
}

// listable refuses who would not see the tool in a list, as he is refused whatever he calls it with.
func (x *exchange) listable(ctx context.Context) *ask.Refusal {
	list := x.operation()
	list.Method, list.Tool = "tools/list", nil
	keep, refused := x.g.o.Asker.Filter(ctx, list, []ask.Item{{Tool: x.tool.Tool, Server: x.tool.Server}})
	x.g.health.asked(refused)
	if refused != nil || keep[0] {
		return refused
	}
	return x.ask(ctx, ask.Answered{})
}

// toolError is the result of a tool that says that the call failed.
func toolError(text string) rpc.Object {
	content := rpc.Object{}.With("type", rpc.String("text")).With("text", rpc.String(text))
	return rpc.Object{}.With("content", rpc.Array([]jsontext.Value{content.Value()})).With("isError", jsontext.Value("true"))
}

// schemas are the inputSchemas of locked tools, each compiled once: as they are locked, and not as some server lists them for
// some client. What is no longer locked goes with the file in which it was.
type schemas struct {
	members arguments.Members

	mu   sync.Mutex
	file *lock.File
	all  map[string]compiledSchema // by the digest of the tool's definition
}

type compiledSchema struct {
	schema *arguments.Schema
	err    error
}

// of is the schema of a tool that is as the file has it locked.
func (s *schemas) of(file *lock.File, server, name string) (*arguments.Schema, error) {
	t := file.Servers[server].Tools[name]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file != file {
		s.file, s.all = file, map[string]compiledSchema{}
	}
	made, ok := s.all[t.Digest()]
	if !ok {
		made.schema, made.err = Schema(t, s.members)
		s.all[t.Digest()] = made
	}
	return made.schema, made.err
}

// Schema is the inputSchema of a locked tool, against which arguments are held.
func Schema(t lock.Tool, m arguments.Members) (*arguments.Schema, error) {
	schema, ok := t.Definition().Lookup("inputSchema")
	if !ok {
		return arguments.Compile(nil, m)
	}
	text, err := json.Marshal(schema)
	if err != nil {
		return nil, err
	}
	return arguments.Compile(text, m)
}
