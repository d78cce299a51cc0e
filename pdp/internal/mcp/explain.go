package mcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/evaluation/coaz"
	"policy-service/pdp/internal/mcp/internal/arguments"
	"policy-service/pdp/internal/mcp/internal/ask"
	"policy-service/pdp/internal/mcp/internal/era"
	"policy-service/pdp/internal/mcp/internal/flow"
	"policy-service/pdp/internal/mcp/internal/identity"
	"policy-service/pdp/internal/mcp/internal/link"
	"policy-service/pdp/internal/mcp/lock"
	"policy-service/pdp/internal/rpc"
	"policy-service/pdp/internal/spelling"
)

// Asked is a message as a client sends it, and for whom it is.
type Asked struct {
	Message []byte
	// Claims are those of a token, and empty with a fixed identity. Nothing about them is verified.
	Claims evaluation.Object
	// Tools are those that the servers have. If there are none, they are those that are locked.
	Tools []Tool
}

// Tool is a tool of a server's, as the server defines it.
type Tool struct {
	Server     string
	Definition jsontext.Value
}

// Explanation has the questions of a gateway about a message, before it lets it go on.
type Explanation struct {
	Method, Tenant string
	// Questions are in the order in which they are asked. There are none if the message goes on unasked, or is refused.
	Questions []Question
	// Refused says why nothing can be asked, nil if something can.
	Refused *Refused
}

// Question is one message to the PDP.
type Question struct {
	// Author of the mapping that the question is made by: operator, built-in, binding or declared.
	Author string
	// Digest of the mapping, "" if the author is built-in.
	Digest string
	// Whole reports that the question is the gateway's own and has all of a call in it: then people can approve the call.
	Whole bool
	API   coaz.API
	// Path at the PDP, and Body, byte for byte.
	Path string
	Body jsontext.Value
}

// Refused is why a gateway refuses a message without a question.
type Refused struct {
	Kind    string
	Code    int // of JSON-RPC, 0 if clients get the result of the tool instead
	Message string
	// In is the text that Pointer leads into, "" for none. Expression stands there in a mapping.
	In, Pointer, Expression string
	Try                     string
}

// The texts that a pointer leads into.
const (
	InMessage    = "message"
	InMapping    = "mapping"
	InDefinition = "definition" // of the tool
)

// Explain makes the questions of a gateway about a message by the code that asks. It verifies no token, and sends nothing.
func Explain(ctx context.Context, c Config, a Asked) (Explanation, error) {
	Form.SetDefaults(&c)
	if err := c.Check(); err != nil {
		return Explanation{}, err
	}
	caught := &caught{}
	asker, err := c.dry(caught)
	if err != nil {
		return Explanation{}, err
	}
	locked, err := c.readLock()
	if err != nil {
		return Explanation{}, err
	}
	if locked != nil && len(a.Tools) == 0 {
		a.Tools = toolsOf(*locked)
	}
	op, refused, err := c.operation(asker, a, locked)
	if err != nil || refused != nil {
		return Explanation{Method: op.Method, Refused: refused}, err
	}
	x := Explanation{Method: op.Method, Tenant: cmp.Or(op.Principal.Tenant, evaluation.DefaultTenant)}
	plan, refusal := asker.Plan(ctx, op)
	if refusal != nil {
		x.Refused = refusedBy(refusal)
		return x, nil
	}
	for n := range plan.Len() {
		caught.body = nil
		answers := plan.Pose(ctx, n)
		if caught.body == nil {
			return x, fmt.Errorf("the question cannot be sent: %w; leave out of the message what makes it too large", answers[0].Err())
		}
		q := Question{Author: string(plan.Source(n).Author), Whole: plan.Whole(n), API: coaz.Evaluation, Path: caught.path, Body: caught.body}
		if m := plan.Source(n).Mapping; m != nil {
			q.Digest = m.Digest()
		}
		if strings.HasSuffix(q.Path, string(coaz.Evaluations)) {
			q.API = coaz.Evaluations
		}
		x.Questions = append(x.Questions, q)
	}
	return x, nil
}

// dry makes an asker whose questions go nowhere.
func (c Config) dry(to http.RoundTripper) (*ask.Asker, error) {
	c.PDP = PDPConfig{Embedded: &EmbeddedConfig{}, Tenant: c.PDP.Tenant, Timeout: c.PDP.Timeout}
	c.PDP.Breaker.Failures = 1000 // more than one message has questions: none gets an answer, and each of them is wanted
	a, _, err := c.asker(Deps{Transport: to}.withDefaults(), c.Obligations.promised(), nil)
	return a, err
}

// caught is a transport that keeps the last request, and sends nothing.
type caught struct {
	path string
	body []byte
}

// RoundTrip implements [http.RoundTripper].
func (c *caught) RoundTrip(r *http.Request) (*http.Response, error) {
	text, err := io.ReadAll(r.Body)
	c.path, c.body = r.URL.Path, text
	return nil, errors.Join(err, r.Body.Close(), errors.New("the question is not sent"))
}

// Compile says of each tool why a gateway of this configuration neither lists nor calls it; nil if it does.
func Compile(c Config, tools []Tool) ([]error, error) {
	Form.SetDefaults(&c)
	asker, err := c.dry(&caught{})
	if err != nil {
		return nil, err
	}
	all := make([]error, len(tools))
	for n, t := range tools {
		if _, all[n] = asker.Tool(t.Server, "", t.Definition, nil); all[n] == nil {
			all[n] = c.readable(t)
		}
	}
	return all, nil
}

// Unjudged says why a gateway does not hold arguments against the inputSchema of a locked tool; nil if it does, or has no such tool.
func Unjudged(c Config, t lock.Tool) error {
	_, unjudged, _ := link.Schema(t, c.Arguments)
	return unjudged
}

// readable is an error if the inputSchema of a tool cannot be used.
func (c Config) readable(t Tool) error {
	definition, err := rpc.ParseObject(t.Definition)
	if err == nil {
		_, err = era.HeaderParams(definition.Get("inputSchema"))
	}
	if err != nil {
		return err
	}
	locked, err := lock.ParseTool(t.Definition)
	if err == nil {
		_, _, err = link.Schema(locked, c.Arguments)
	}
	return err
}

func (c Config) operation(asker *ask.Asker, a Asked, locked *lock.File) (op ask.Operation, refused *Refused, err error) {
	who, err := c.whoAsks()
	if err != nil {
		return op, nil, err
	}
	if op.Principal, err = identity.Claimed(who, a.Claims); err != nil {
		return op, nil, fmt.Errorf("the claims: %w", err)
	}
	if len(a.Message) > int(c.Limits.MaxBody) {
		return op, unread(rpc.InvalidRequest, fmt.Sprintf("the message is larger than %d bytes (limits.max_body)", c.Limits.MaxBody)), nil
	}
	m, fault := rpc.Parse(a.Message)
	switch {
	case fault != nil:
		return op, unread(fault.Code, fault.Detail), nil
	case !m.IsRequest():
		return op, nil, errors.New("the message is an answer or a notification, about which a gateway asks nobody; give a request, such as tools/call")
	}
	op.Method = m.Method
	op.Params, _ = m.ParamsObject() // none, or an object: Parse takes nothing else
	if op.Params.GetObject("_meta").Get(era.MetaVersion) != nil {
		op.Era = era.Modern
		if _, fault := era.ReadMeta(op.Params); fault != nil {
			return op, unread(fault.Code, fault.Message), nil
		}
	}
	return op, c.place(asker, &op, a.Tools, locked), nil
}

// readLock reads the lock, nil if nothing is locked.
func (c Config) readLock() (*lock.File, error) {
	if c.Lock.File == "" || c.Lock.Mode == LockOff {
		return nil, nil
	}
	f, err := lock.Read(c.Lock.File)
	if err != nil && !(c.Lock.Mode == LockWarn && errors.Is(err, fs.ErrNotExist)) {
		return nil, fmt.Errorf("lock.file: %w", err)
	}
	return &f, nil
}

func toolsOf(f lock.File) (all []Tool) {
	for _, server := range sortedNames(f.Servers) {
		for _, name := range sortedNames(f.Servers[server].Tools) {
			all = append(all, Tool{server, f.Servers[server].Tools[name].Text()})
		}
	}
	return all
}

func unread(code int, what string) *Refused {
	return &Refused{Kind: "unreadable", Code: code, Message: what, Try: "write the message as a client sends it"}
}

// place finds the server that an operation is for, and its tool.
func (c Config) place(asker *ask.Asker, op *ask.Operation, tools []Tool, locked *lock.File) *Refused {
	var all []*link.Server // as far as they distinguish requests
	for _, name := range sortedNames(c.Upstreams) {
		all = append(all, &link.Server{Name: name, URIs: c.uris(c.Upstreams[name])})
	}
	s, what := flow.Route(all, op.Method, op.Params)
	switch {
	case s != nil:
		op.Server = s.Name
	case len(all) == 1:
		op.Server = all[0].Name
	case what != "" && what != "tool":
		return unknown(what, "/params", "write a name that begins with that of an upstream and two underscores, or a URI that begins as uris of an upstream do")
	}
	if what != "tool" {
		return nil
	}
	if size := len(op.Params.Get("arguments")); size > int(c.Limits.MaxArguments) {
		return inArguments("invalid_params", rpc.InvalidParams, fmt.Sprintf("the arguments are larger than %d bytes (limits.max_arguments)", c.Limits.MaxArguments), "send less, or allow more there")
	}
	name, shown := op.Params.GetString("name"), []string(nil)
	for _, t := range tools {
		definition, err := rpc.ParseObject(t.Definition)
		own := definition.GetString("name")
		if err != nil || own == "" || c.Upstreams[t.Server].Tools[own].Hidden {
			continue
		}
		as := c.ToolName(t.Server, own)
		if as == name {
			return c.called(asker, op, t, own, locked)
		}
		shown = append(shown, as)
	}
	try := "write the name of a tool that is locked, or give the definition of the tool"
	if near, ok := spelling.Nearest(name, shown); ok {
		try = "did you mean " + near + "?"
	}
	return unknown("tool", "/params/name", try)
}

func (c Config) called(asker *ask.Asker, op *ask.Operation, t Tool, own string, locked *lock.File) *Refused {
	tool, err := asker.Tool(t.Server, c.ToolName(t.Server, own), t.Definition, c.Upstreams[t.Server].Tools[own].Labels)
	if err != nil {
		return badTool(err)
	}
	if op.Server, op.Tool = t.Server, tool; locked == nil {
		return nil
	}
	pinned := locked.Servers[t.Server].Tools[own].Digest() == tool.Digest
	if !pinned && c.Lock.Mode != LockWarn {
		return unknown("tool", "/params/name", "the tool is not as it is locked: see policy-service mcp lock --diff")
	}
	if op.Tool = tool.Pinned(pinned); !pinned {
		return nil
	}
	return c.misfit(locked.Servers[t.Server].Tools[own], op.Params.Get("arguments"))
}

func unknown(what, pointer, try string) *Refused {
	return &Refused{Kind: string(ask.Unknown), Code: rpc.InvalidParams, Message: "unknown " + what, In: InMessage, Pointer: pointer, Try: try}
}

func inArguments(kind string, code int, message, try string) *Refused {
	return &Refused{Kind: kind, Code: code, Message: message, In: InMessage, Pointer: "/params/arguments", Try: try}
}

// misfit refuses arguments that do not fit the inputSchema of a locked tool. Clients get it as the result of the tool.
func (c Config) misfit(t lock.Tool, given jsontext.Value) *Refused {
	if given != nil && given.Kind() != '{' {
		return inArguments("invalid_params", rpc.InvalidParams, "the arguments are not an object", "write an object")
	}
	schema, unjudged, err := link.Schema(t, c.Arguments)
	switch {
	case err != nil:
		return badTool(err)
	case unjudged != nil:
		return nil
	}
	problems, err := schema.Check(given)
	switch {
	case err != nil:
		return inArguments("misfit", 0, err.Error(), "send less")
	case len(problems) > 0:
		r := inArguments("misfit", 0, arguments.Text(problems), "write the arguments as the inputSchema of the tool has them")
		r.Pointer += problems[0].Pointer
		return r
	}
	return nil
}

func badTool(err error) *Refused {
	r := &Refused{Kind: string(ask.Unmapped), Code: rpc.InvalidParams, Message: "the tool is neither listed nor callable: " + err.Error(), Try: "mend the tool's definition, or set declared: ignore"}
	if r.locate(err); r.In == InMessage {
		r.In = InDefinition
	}
	return r
}

func refusedBy(r *ask.Refusal) *Refused {
	x := &Refused{Kind: string(r.Kind), Code: r.Code, Message: r.Message, Try: "tasks are not offered, and with strict: true a method needs a mapping: write one into mappings"}
	switch r.Kind {
	case ask.Unknown:
		x.In, x.Pointer, x.Try = InMessage, "/method", "write the method as MCP has it in the era of the message"
	case ask.Unmapped:
		x.Try = "mend the message"
	case ask.Unavailable:
		x.Message, x.Try = r.Why, "check pdp and identity in the configuration"
	default:
		x.In, x.Pointer = InMessage, "/method"
	}
	x.locate(r.Cause)
	return x
}

func (r *Refused) locate(err error) {
	var ofMapping *coaz.Error
	var ofMessage *evaluation.Error
	switch {
	case errors.As(err, &ofMapping):
		r.In, r.Pointer, r.Expression = InMapping, ofMapping.Pointer, ofMapping.Expression
		r.Try = "mend the mapping, or send what it reads"
	case errors.As(err, &ofMessage):
		r.In, r.Pointer, r.Try = InMessage, ofMessage.Pointer, cmp.Or(ofMessage.Try, r.Try)
	}
}
