package gate

import (
	"context"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/mcp/internal/ask"
	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/rpc"
	"policy-service/pdp/mcp/internal/upstream"
	"policy-service/pdp/mcp/wire"
)

// introduction is what a server says of itself, in the form of an era: what [upstream.Session.Server] gives.
type introduction struct {
	server jsontext.Value
	era    era.Era
}

// introduction opens all links. Of one server it is the server's own; of several it is ours, and says what all of them can.
func (x exchange) introduction(ctx context.Context) (introduction, error) {
	all := each(ctx, x, func(ctx context.Context, x exchange) (upstream.Session, error) { return x.meets(ctx) })
	came, err := there(all)
	if err != nil {
		return introduction{}, err
	}
	if x.link != nil && len(came) > 0 {
		s := came[0].value
		return introduction{x.g.introduces(x.link, s), s.Era()}, nil
	}
	can, words := abilities{}, []string{}
	for _, p := range all {
		if p.err != nil { // it may have all this when it is back, or when something of it is permitted
			can.add(p.of.link.server, rpc.Object{}.With("tools", jsontext.Value(`{}`)).With("prompts", jsontext.Value(`{}`)).With("resources", jsontext.Value(`{}`)))
			continue
		}
		server, err := rpc.ParseObject(x.g.introduces(p.of.link, p.value))
		if err != nil || len(server.Get("capabilities")) > mostCapabilities {
			x.g.o.Logger.Warn("what a server says of itself is left out: it cannot be read, or it is too large", "server", p.of.link.server.Name)
			continue
		}
		can.add(p.of.link.server, server.GetObject("capabilities"))
		if said := server.GetString("instructions"); said != "" {
			words = append(words, instructions(p.of.link.server.Name, said, mostInstructions/len(all)))
		}
	}
	o := rpc.Object{}.With("capabilities", can.value()).With("serverInfo", x.g.o.Front.Self)
	if len(words) > 0 {
		o = o.With("instructions", rpc.String(strings.Join(words, "\n")))
	}
	return introduction{o.Value(), era.Legacy}, nil
}

// meets opens the session with a server. If nothing is known of the server, its tools are known to others from then on.
func (x exchange) meets(ctx context.Context) (upstream.Session, error) {
	if err := x.mayOpen(ctx); err != nil {
		return nil, err
	}
	s, err := x.opened(ctx)
	if err == nil && !x.g.ofOne() && offers(s, "tools") {
		if _, listed := x.g.knownOf(x.link.server); !listed {
			_, _ = x.tools(ctx) // a failure is of the server's tools, and the client meets it when it wants them
		}
	}
	return s, err
}

// What the gateway can beside its servers, as it says and as clients say that they know of it.
const (
	// authorizations are that people hear of what waits for them, and decide by messages.
	authorizations = era.Own + "authorization"
	// toolRequests are that an agent asks others to call a tool.
	toolRequests = era.Own + "tool-requests"
)

// extensions are those that there are with this configuration.
func (g *Gateway) extensions() []string {
	if g.o.Asker.Requests() {
		return []string{authorizations, toolRequests}
	}
	return []string{authorizations}
}

// knows reports whether a client has said that it knows an extension, in whichever way its era has for that.
func (c client) knows(extension string) bool {
	o, _ := rpc.ParseObject(c.capabilities)
	return o.GetObject("extensions").Get(extension).Kind() == '{' || o.GetObject("experimental").Get(extension).Kind() == '{'
}

// speaksMCPx reports whether a message is one of those extensions.
func speaksMCPx(method string, params rpc.Object) bool {
	switch method {
	case wire.MethodToolRequest, rpc.Respond:
		return true
	}
	return method == "subscriptions/listen" && wantsAuthorizations(params)
}

// there are the parts that came. It is an error if none did, unless a server is closed, and also if the PDP could not decide
// about one: what cannot be decided is no shorter list.
func there[T any](all []part[T]) (came []part[T], err error) {
	closed := false
	for _, p := range all {
		if p.err == nil {
			came = append(came, p)
			continue
		}
		closed = closed || p.err == errClosed
		if a, ok := p.err.(*Answer); ok && a.is(ask.Unavailable) {
			return nil, p.err
		}
		if err == nil {
			err = p.err
		}
	}
	if len(came) > 0 || closed {
		return came, nil
	}
	return nil, err
}

const (
	// mostCapabilities is how much one of several servers may say that it can, in bytes.
	mostCapabilities = 16 << 10
	// mostInstructions is how much all of several servers may tell models, in bytes. Each has the same share.
	mostInstructions = 32 << 10
)

// abilities are the capabilities of several servers. They have the form that clients know, whatever one server says.
type abilities struct {
	tools, prompts, resources, subscribe, completions, logging bool
	extensions, experimental                                   rpc.Object
}

func (a *abilities) add(s *Server, o rpc.Object) {
	has := func(name string) bool { return o.Get(name).Kind() == '{' }
	a.tools = a.tools || has("tools")
	a.prompts = a.prompts || has("prompts")
	a.completions = a.completions || has("completions")
	a.logging = a.logging || has("logging")
	if has("resources") && len(s.URIs) > 0 {
		a.resources = true
		a.subscribe = a.subscribe || o.GetObject("resources").Get("subscribe").Kind() == 't'
	}
	a.extensions = withObjects(a.extensions, o.GetObject("extensions"))
	a.experimental = withObjects(a.experimental, o.GetObject("experimental"))
}

// mostExtensions is how many of them one of several servers may name.
const mostExtensions = 64

// withObjects is o with those members of more that are objects, and that it has not.
func withObjects(o, more rpc.Object) rpc.Object {
	if more.Len() > mostExtensions {
		return o
	}
	for name, v := range more.Members {
		if v.Kind() == '{' && o.Get(name) == nil {
			o = o.With(name, v)
		}
	}
	return o
}

// value is what clients are told. Lists may change at any time: with a server that was away, and is back.
func (a *abilities) value() jsontext.Value {
	const changes = `{"listChanged":true}`
	resources := changes
	if a.subscribe {
		resources = `{"subscribe":true,"listChanged":true}`
	}
	o := rpc.Object{}
	for _, one := range []struct {
		has         bool
		name, value string
	}{
		{a.tools, "tools", changes}, {a.prompts, "prompts", changes}, {a.resources, "resources", resources},
		{a.completions, "completions", `{}`}, {a.logging, "logging", `{}`},
		{a.extensions.Len() > 0, "extensions", string(a.extensions.Value())}, {a.experimental.Len() > 0, "experimental", string(a.experimental.Value())},
	} {
		if one.has {
			o = o.With(one.name, jsontext.Value(one.value))
		}
	}
	return o.Value()
}

// instructions are what one of several servers tells models: below its name, and set in, so that nothing in it passes for
// what another says.
func instructions(server, said string, most int) string {
	if len(said) > most {
		said = said[:most]
		for !utf8.ValidString(said) {
			said = said[:len(said)-1]
		}
		said += "…"
	}
	lines := strings.FieldsFunc(said, func(r rune) bool { return strings.ContainsRune("\n\r\v\f\u0085\u2028\u2029", r) })
	return server + ":\n  " + strings.Join(lines, "\n  ")
}
