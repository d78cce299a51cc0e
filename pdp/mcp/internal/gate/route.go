package gate

import (
	"context"
	"slices"

	"policy-service/pdp/mcp/internal/ask"
	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/rpc"
)

// route finds the server that a request is for, and the tool that is called. What is for all servers it leaves alone.
func (x *exchange) route(ctx context.Context) *ask.Refusal {
	s, what := Route(x.g.o.Servers, x.request.Method, x.params)
	switch {
	case what == "":
		return nil
	case s != nil:
		x.link = x.reach.to(s.Name)
	case what == "tool":
		return ask.UnknownTool()
	default:
		return x.nobodys(what)
	}
	if what == "tool" {
		return x.find(ctx)
	}
	return nil
}

// Route is the server that a request is for, by what it names: a tool, prompt, resource or reference. What is "" if it names
// nothing, and is for all servers. S is nil if no server has such names.
func Route(all []*Server, method string, params rpc.Object) (s *Server, what string) {
	switch method {
	case "tools/call":
		return named(all, params), "tool"
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
func (x *exchange) nobodys(what string) *ask.Refusal {
	code := rpc.InvalidParams
	if what == "resource" && x.client.era == era.Legacy {
		code = era.ResourceNotFound
	}
	return refusal(ask.Unknown, code, "unknown "+what, "no server has such a "+what)
}

// named is the server that the name of a tool or prompt names.
func named(all []*Server, o rpc.Object) *Server {
	if len(all) == 1 {
		return all[0]
	}
	server, _, ok := apart(o.GetString("name"))
	n := slices.IndexFunc(all, func(s *Server) bool { return s.Name == server })
	if !ok || n < 0 {
		return nil
	}
	return all[n]
}

// referred is the server that has what is to be completed.
func referred(all []*Server, ref rpc.Object) *Server {
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
func owner(all []*Server, uri string) *Server {
	if n := slices.IndexFunc(all, func(s *Server) bool { return s.owns(uri) }); n >= 0 {
		return all[n]
	}
	return nil
}

// own are params in which a server finds its own name for what clients of several servers call by another. All else stays
// as it is.
func (x *exchange) own(params rpc.Object) rpc.Object {
	if !x.g.several() {
		return params
	}
	switch ref := params.GetObject("ref"); {
	case x.tool != nil:
		return params.With("name", rpc.String(x.tool.Name))
	case x.request.Method == "prompts/get":
		return ownPrompt(params)
	case x.request.Method == "completion/complete" && ref.GetString("type") == "ref/prompt":
		return params.With("ref", ownPrompt(ref).Value())
	}
	return params
}

func ownPrompt(o rpc.Object) rpc.Object {
	_, name, _ := apart(o.GetString("name"))
	return o.With("name", rpc.String(name))
}
