package mcp

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/evaluation/coaz"
	"policy-service/pdp/mcp/internal/arguments"
	"policy-service/pdp/mcp/internal/ask"
	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/flow"
	"policy-service/pdp/mcp/internal/identity"
	"policy-service/pdp/mcp/internal/link"
	"policy-service/pdp/mcp/internal/rpc"
	"policy-service/pdp/mcp/lock"
	"policy-service/pdp/spelling"
)

// operation is the operation of a message, with its principal.
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
	m, fault := rpc.Parse(a.Message, rpc.DefaultLimits())
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
		if meta, fault := era.ReadMeta(op.Params); fault != nil {
			return op, unread(fault.Code, fault.Message), nil
		} else if !slices.Contains(era.ModernVersions, meta.Version) {
			return op, unread(era.UnsupportedVersion, era.MetaVersion+" in params._meta is no revision that the gateway speaks"), nil
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

// toolsOf are the tools of a lock.
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

// servers are the upstreams as far as they distinguish requests.
func (c Config) servers() (all []*link.Server) {
	for _, name := range sortedNames(c.Upstreams) {
		all = append(all, &link.Server{Name: name, URIs: c.uris(c.Upstreams[name])})
	}
	return all
}

// place finds the server that an operation is for, and its tool.
func (c Config) place(asker *ask.Asker, op *ask.Operation, tools []Tool, locked *lock.File) *Refused {
	all := c.servers()
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

// called sets the tool of an operation.
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

// unknown is the refusal of a name that is no server's.
func unknown(what, pointer, try string) *Refused {
	return &Refused{Kind: string(ask.Unknown), Code: rpc.InvalidParams, Message: "unknown " + what, In: InMessage, Pointer: pointer, Try: try}
}

func inArguments(kind string, code int, message, try string) *Refused {
	return &Refused{Kind: kind, Code: code, Message: message, In: InMessage, Pointer: "/params/arguments", Try: try}
}

// misfit is the refusal of arguments that the inputSchema of a locked tool does not allow. Clients get it as the result of
// the tool.
func (c Config) misfit(t lock.Tool, given jsontext.Value) *Refused {
	if given != nil && given.Kind() != '{' {
		return inArguments("invalid_params", rpc.InvalidParams, "the arguments are not an object", "write an object")
	}
	schema, unjudged, err := link.Schema(t, c.members())
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

// badTool is why a tool is neither listed nor callable.
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

// locate says where an error is.
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
