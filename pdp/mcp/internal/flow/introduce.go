package flow

import (
	"context"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/mcp/internal/answer"
	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/link"
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
		return introduction{x.link.Introduces(s), s.Era()}, nil
	}
	can, words := abilities{}, []string{}
	for _, p := range all {
		if p.err != nil { // it may have all this when it is back, or when something of it is permitted
			can.add(p.of.link.Server, rpc.Object{}.With("tools", jsontext.Value(`{}`)).With("prompts", jsontext.Value(`{}`)).With("resources", jsontext.Value(`{}`)))
			continue
		}
		server, err := rpc.ParseObject(p.of.link.Introduces(p.value))
		if err != nil || len(server.Get("capabilities")) > mostCapabilities {
			x.g.o.Logger.Warn("what a server says of itself is left out: it cannot be read, or it is too large", "server", p.of.link.Server.Name)
			continue
		}
		can.add(p.of.link.Server, server.GetObject("capabilities"))
		if said := server.GetString("instructions"); said != "" {
			words = append(words, instructions(p.of.link.Server.Name, said, mostInstructions/len(all)))
		}
	}
	o := rpc.Object{}.With("capabilities", can.value()).With("serverInfo", x.g.o.Self)
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
	s, err := x.link.Opened(ctx, x.Who)
	if err == nil && !x.g.ofOne() && link.Offers(s, "tools") {
		if _, listed := x.g.servers.KnownOf(x.link.Server); !listed {
			_, _ = x.link.Listed(ctx, x.Who, x.Client) // a failure is of the server's tools, and the client meets it when it wants them
		}
	}
	return s, err
}

// extensions are those that there are with this configuration.
func (g *Flow) extensions() []string {
	if g.o.Asker.Requests() {
		return []string{era.Authorizations, era.ToolRequests}
	}
	return []string{era.Authorizations}
}

// speaksMCPx reports whether a message is one of those extensions.
func speaksMCPx(method string, params rpc.Object) bool {
	switch method {
	case wire.MethodToolRequest, rpc.Respond:
		return true
	}
	return method == "subscriptions/listen" && wantsAuthorizations(params)
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

func (a *abilities) add(s *link.Server, o rpc.Object) {
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

// initialize answers the handshake, and has the session begin.
func (x exchange) initialize(ctx context.Context) *answer.Answer {
	said, err := x.introduction(ctx)
	if err != nil {
		return x.failed(err)
	}
	result, err := era.Initialized(said.server, said.era, x.Client.Version, x.g.extensions())
	if err != nil {
		return answer.Ambiguous("what the server says of itself cannot be read")
	}
	answer := x.result(rpc.Answer(rpc.ID{}, result))
	if answer.Message.Error == nil {
		x.Reply.Begin(x.Session.ID)
	}
	return answer
}

// discover says what the servers say of themselves, and what the gateway speaks.
func (x exchange) discover(ctx context.Context) *answer.Answer {
	said, err := x.introduction(ctx)
	if err != nil {
		return x.failed(err)
	}
	result, err := era.Discovered(said.server, said.era, x.g.extensions())
	if err != nil {
		return answer.Ambiguous("what the server says of itself cannot be read")
	}
	return x.result(rpc.Answer(rpc.ID{}, result))
}
