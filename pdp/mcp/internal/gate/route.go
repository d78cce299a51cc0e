package gate

import (
	"context"

	"policy-service/pdp/mcp/internal/ask"
	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/rpc"
)

// route finds the server that a request is for, and the tool that is called. What is for all servers it leaves alone.
func (x *exchange) route(ctx context.Context) *ask.Refusal {
	switch x.request.Method {
	case "tools/call":
		if x.link = x.named(x.params); x.link == nil {
			return ask.UnknownTool()
		}
		return x.find(ctx)
	case "prompts/get":
		if x.link = x.named(x.params); x.link == nil {
			return nobodys("prompt", x.client.era)
		}
	case "completion/complete":
		if x.link = x.referred(x.params.GetObject("ref")); x.link == nil {
			return nobodys("reference", x.client.era)
		}
	case "resources/read", "resources/subscribe", "resources/unsubscribe":
		if x.link = x.reach.owner(x.params.GetString("uri")); x.link == nil {
			return nobodys("resource", x.client.era)
		}
	}
	return nil
}

// nobodys refuses what no server has.
func nobodys(what string, e era.Era) *ask.Refusal {
	code := rpc.InvalidParams
	if what == "resource" && e == era.Legacy {
		code = era.ResourceNotFound
	}
	return refusal(ask.Unknown, code, "unknown "+what, "no server has such a "+what)
}

// named is the link to the server that the name of a tool or prompt names.
func (x *exchange) named(o rpc.Object) *link {
	if only := x.reach.only(); only != nil {
		return only
	}
	server, _, ok := apart(o.GetString("name"))
	if !ok {
		return nil
	}
	return x.reach.to(server)
}

// referred is the link to the server that has what is to be completed.
func (x *exchange) referred(ref rpc.Object) *link {
	switch ref.GetString("type") {
	case "ref/prompt":
		return x.named(ref)
	case "ref/resource":
		return x.reach.owner(ref.GetString("uri"))
	}
	return x.reach.only()
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
