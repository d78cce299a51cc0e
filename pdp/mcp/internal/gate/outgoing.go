package gate

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/rpc"
	"policy-service/pdp/mcp/internal/traces"
	"policy-service/pdp/mcp/internal/upstream"
)

// What goes to a server is what was decided about, byte for byte, but for what MCP itself has beside it: who speaks which
// revision, by which token progress is known, and what is between the client and the gateway alone.

// betweenUs are members of params that are for the gateway.
var betweenUs = []string{"capability", "proof", "onBehalfOf", "requestId"}

// outgoing are the params of this exchange as the server of s gets them.
func (x Target) outgoing(ctx context.Context, s upstream.Session, params rpc.Object) rpc.Object {
	c := x.client
	if x.session != nil {
		c.logLevel = x.link.level()
	}
	params = params.Without(func(name string) bool { return slices.Contains(betweenUs, name) })
	params = withMeta(params, traces.Traced(ctx, x.g.metaOf(params)))
	return outgoing(s.Era(), x.link.server, c, params)
}

// metaOf are the members of _meta of something that a client sends, as far as they are for the server, too.
func (g *Gateway) metaOf(o rpc.Object) rpc.Object {
	return o.GetObject("_meta").Without(func(name string) bool { return !g.goesOn(name) })
}

// withMeta is o with another _meta, or without one if that is empty.
func withMeta(o, meta rpc.Object) rpc.Object {
	if meta.Len() == 0 {
		return o.Without(func(name string) bool { return name == "_meta" })
	}
	return o.With("_meta", meta.Value())
}

// answered is what a client answers to a server, nil if it does not, as the server gets it.
func (g *Gateway) answered(v jsontext.Value) jsontext.Value {
	o, err := rpc.ParseObject(v)
	if err != nil || o.Get("_meta") == nil {
		return v
	}
	return withMeta(o, g.metaOf(o)).Value()
}

// goesOn reports whether a member of a client's _meta is for the server, too.
func (g *Gateway) goesOn(name string) bool {
	switch name {
	case "progressToken", "traceparent", "tracestate":
		return true
	}
	return slices.Contains(g.o.Meta, name) && !strings.HasPrefix(name, ownMeta)
}

// outgoing are params with what the era of a server wants in them.
func outgoing(e era.Era, s *Server, c client, params rpc.Object) rpc.Object {
	if e == era.Modern {
		return era.ToModern(params, era.Client{Version: era.ModernVersions[0], Info: c.info, Capabilities: s.able(c.capabilities), LogLevel: c.logLevel})
	}
	return params
}

// able are the capabilities of a client as a server is told them: it is not to know of what it may not use. What is between the
// client and us another gateway behind us would take for its own.
func (s *Server) able(capabilities jsontext.Value) jsontext.Value {
	o, _ := rpc.ParseObject(capabilities)
	return era.WithoutOwn(o).Without(func(name string) bool {
		switch name {
		case "elicitation":
			return !s.Asks.Elicitation
		case "sampling":
			return !s.Asks.Sampling
		case "roots":
			return !s.Asks.Roots
		}
		return name == "tasks"
	}).Value()
}

// progressToken is by what the client wants to hear of progress, nil if it does not.
func (x *Call) progressToken() jsontext.Value {
	return x.params.GetObject("_meta").Get("progressToken")
}

// progress is how progress of this request is known, and the params with our token for it.
func (x *Call) progress(params rpc.Object) (progressToken, rpc.Object) {
	theirs := x.progressToken()
	if theirs == nil {
		return progressToken{}, params
	}
	ours := "p" + strconv.FormatUint(x.g.tokens.Add(1), 10)
	return progressToken{ours, theirs}, params.With("_meta", params.GetObject("_meta").With("progressToken", rpc.String(ours)).Value())
}
