package ask

import (
	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient"
	"policy-service/evaluation/authzenclient/approvals"
	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/identity"
	"policy-service/pdp/mcp/internal/rpc"
)

// Operation is one request of a client.
type Operation struct {
	Principal *identity.Principal
	// Era is the client's: which methods there are and the codes of errors go by it.
	Era era.Era
	// Server is the name of the upstream, "" of a method that is for all of them. Method and Params are the request's, as
	// received.
	Server string
	Method string
	Params rpc.Object
	// Tool is what tools/call and tools/request name, nil for all other methods.
	Tool *Tool
	// MCPx is set if the client speaks its messages, and can request a tool of others.
	MCPx bool
	// Requester is who has requested a call that somebody else makes for them, nil of every other.
	Requester *identity.Principal
	// Answered is what people said of the call before; zero if nobody was asked.
	Answered Answered
}

// Answered is what of people's word the last question brings: one of the two at the most. What comes of it the PDP says.
type Answered struct {
	Standing  *approvals.Standing         // that people approved the call
	Continues *authzenclient.Continuation // that they did before, and that it goes on
}

func (a Answered) given() bool { return a.Standing != nil || a.Continues != nil }

// parameters are what of a request's params is decided on.
type parameters struct {
	members rpc.Object
	object  *evaluation.Object // all of them, once somebody needs that
}

// room is what a question has besides the arguments of a call: who asks, and what is known of the tool. Arguments that
// leave less cannot be asked about.
const (
	roomBytes  = 64 << 10
	roomValues = 2000
)

// boundsOf are the PDP's limits for what is sent on to it from depth containers further down.
func boundsOf(depth int) evaluation.Limits {
	limits := evaluation.DefaultLimits()
	limits.Body -= roomBytes
	limits.Values -= roomValues
	limits.Depth -= depth
	return limits
}

// whole is all parameters, as mappings read them.
func (p *parameters) whole() (evaluation.Object, error) {
	if p.object == nil {
		o, err := evaluation.ParseWithNulls(p.members.Value(), boundsOf(1))
		if err != nil {
			return o, below("/params", err)
		}
		p.object = &o
	}
	return *p.object, nil
}

// named are all parameters with another name in them.
func (p *parameters) named(name string) (evaluation.Object, error) {
	o, err := p.whole()
	if err != nil {
		return o, err
	}
	text, err := evaluation.Text(name)
	if err != nil {
		return o, wrong("/params/name", "not valid UTF-8")
	}
	return o.With("name", text), nil
}

// inputs are the values of [Inputs].
func (a *Asker) inputs(op *Operation) (evaluation.Object, error) {
	client := map[string]any{}
	if op.Principal.Client != "" {
		client["id"] = op.Principal.Client
	}
	all := map[string]any{
		"server": map[string]any{"name": op.Server, "resource": a.o.Resource, "labels": anyOf(a.o.Labels[op.Server])},
		"client": client,
	}
	if t := op.Tool; t != nil {
		all["tool"] = map[string]any{"name": t.Name, "labels": anyOf(t.Labels), "digest": t.Digest}
	}
	return evaluation.NewObject(all)
}

func anyOf(labels map[string]string) map[string]any {
	all := make(map[string]any, len(labels))
	for name, v := range labels {
		all[name] = v
	}
	return all
}

// wrong is what is wrong with a request, so that nothing can be asked about it.
func wrong(pointer, detail string) error {
	return &evaluation.Error{Pointer: pointer, Detail: detail}
}

// below moves the place of an error to below another.
func below(place string, err error) error {
	if e, ok := err.(*evaluation.Error); ok {
		moved := *e
		moved.Pointer = place + e.Pointer
		return &moved
	}
	return err
}
