package flow

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/mcp/internal/link"
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
	params = params.Without(func(name string) bool { return slices.Contains(betweenUs, name) })
	params = link.WithMeta(params, traces.Traced(ctx, x.g.metaOf(params)))
	return x.link.Outgoing(s, x.Client, params)
}

// metaOf are the members of _meta of something that a client sends, as far as they are for the server, too.
func (g *Flow) metaOf(o rpc.Object) rpc.Object {
	return o.GetObject("_meta").Without(func(name string) bool { return !g.goesOn(name) })
}

// answered is what a client answers to a server, nil if it does not, as the server gets it.
func (g *Flow) answered(v jsontext.Value) jsontext.Value {
	o, err := rpc.ParseObject(v)
	if err != nil || o.Get("_meta") == nil {
		return v
	}
	return link.WithMeta(o, g.metaOf(o)).Value()
}

// goesOn reports whether a member of a client's _meta is for the server, too.
func (g *Flow) goesOn(name string) bool {
	switch name {
	case "progressToken", "traceparent", "tracestate":
		return true
	}
	return slices.Contains(g.o.Meta, name) && !strings.HasPrefix(name, link.OwnMeta)
}

// progressToken is by what the client wants to hear of progress, nil if it does not.
func (x *Call) progressToken() jsontext.Value {
	return x.Params.GetObject("_meta").Get("progressToken")
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
