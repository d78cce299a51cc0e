package flow

import (
	"context"
	"slices"

	"policy-service/pdp/mcp/internal/answer"
	"policy-service/pdp/mcp/internal/ask"
	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/link"
	"policy-service/pdp/mcp/internal/rpc"
	"policy-service/pdp/mcp/wire"
)

// route finds the server that a request is for, and the tool that is called. What is for all servers it leaves alone.
func (x exchange) route(ctx context.Context) (Target, *answer.Answer) {
	if x.Request.Method == wire.MethodToolRequest && !x.g.o.Asker.Requests() { // there is no such method
		return x.Target, nil
	}
	s, what := Route(x.g.servers.All(), x.Request.Method, x.Params)
	switch {
	case what == "":
		return x.Target, nil
	case s != nil:
		x.link = x.Reach.To(s.Name)
	case what == "tool":
		return x.Target, answer.Refuse(ask.UnknownTool())
	default:
		return x.Target, nobodys(what, x.Client.Era)
	}
	if what == "tool" {
		return x.find(ctx)
	}
	return x.Target, nil
}

// Route is the server that a request is for, by what it names: a tool, prompt, resource or reference. What is "" if it names
// nothing, and is for all servers. S is nil if no server has such names.
func Route(all []*link.Server, method string, params rpc.Object) (s *link.Server, what string) {
	if ask.OfTool(method) {
		return named(all, params), "tool"
	}
	switch method {
	case "prompts/get":
		return named(all, params), "prompt"
	case "completion/complete":
		return referred(all, params.GetObject("ref")), "reference"
	case "resources/read", "resources/subscribe", "resources/unsubscribe":
		return owner(all, params.GetString("uri")), "resource"
	}
	return nil, ""
}

// nobodys refuses what no server has.
func nobodys(what string, e era.Era) *answer.Answer {
	code := rpc.InvalidParams
	if what == "resource" && e == era.Legacy {
		code = era.ResourceNotFound
	}
	return answer.New(ask.Unknown, code, "unknown "+what, "no server has such a "+what)
}

// named is the server that the name of a tool or prompt names.
func named(all []*link.Server, o rpc.Object) *link.Server {
	if len(all) == 1 {
		return all[0]
	}
	server, _, ok := link.Apart(o.GetString("name"))
	n := slices.IndexFunc(all, func(s *link.Server) bool { return s.Name == server })
	if !ok || n < 0 {
		return nil
	}
	return all[n]
}

// referred is the server that has what is to be completed.
func referred(all []*link.Server, ref rpc.Object) *link.Server {
	switch ref.GetString("type") {
	case "ref/prompt":
		return named(all, ref)
	case "ref/resource":
		return owner(all, ref.GetString("uri"))
	}
	if len(all) == 1 {
		return all[0]
	}
	return nil
}

// owner is the server whose resource it is, nil if it is nobody's.
func owner(all []*link.Server, uri string) *link.Server {
	if n := slices.IndexFunc(all, func(s *link.Server) bool { return s.Owns(uri) }); n >= 0 {
		return all[n]
	}
	return nil
}

// own are params in which a server finds its own name for what clients of several servers call by another. All else stays
// as it is.
func (x Target) own(params rpc.Object) rpc.Object {
	if !x.g.several() {
		return params
	}
	switch ref := params.GetObject("ref"); {
	case x.tool != nil:
		return params.With("name", rpc.String(x.tool.Name))
	case x.Request.Method == "prompts/get":
		return ownPrompt(params)
	case x.Request.Method == "completion/complete" && ref.GetString("type") == "ref/prompt":
		return params.With("ref", ownPrompt(ref).Value())
	}
	return params
}

func ownPrompt(o rpc.Object) rpc.Object {
	_, name, _ := link.Apart(o.GetString("name"))
	return o.With("name", rpc.String(name))
}
