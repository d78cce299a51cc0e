package ask

import (
	"github.com/go-json-experiment/json/jsontext"

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
	// Tool is the tool that tools/call and tools/request name, nil for all other methods.
	Tool *Tool
	// MCPx is set if the client speaks its messages, and can request a tool of others.
	MCPx bool
	// Requester has requested this call, which another makes for them; nil of every other.
	Requester *identity.Principal
	// Answered is people's answer to the same call before; zero if they were not asked.
	Answered Answered
}

// Answered is the part of people's answer that the last question brings: one of the two at the most. The PDP decides on it.
type Answered struct {
	Standing  *approvals.Standing         // that people approved the call
	Continues *authzenclient.Continuation // that they did before, and that it goes on
}

func (a Answered) given() bool { return a.Standing != nil || a.Continues != nil }

// parameters are the params of a request as far as they are decided on.
type parameters struct {
	members rpc.Object
	object  *evaluation.Object // all of them, once they are needed
}

// room is kept in a question for all but the arguments of a call: the speaker, and the facts about the tool. Arguments that
// leave less cannot be asked about.
const (
	roomBytes  = 64 << 10
	roomValues = 2000
)

// boundsOf are the PDP's limits for a value that is sent on to it from depth containers further down.
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
	return o.With("name", text(name)), err
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

// wrong is an error in a request that leaves no question to ask about it.
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

// Canonical are the arguments of a request in a form that is the same for all that mean the same.
func Canonical(params rpc.Object) []byte {
	arguments, err := evaluation.ParseWithNulls(Arguments(params), evaluation.DefaultLimits())
	if canonical, ok := arguments.Value().AppendCanonical(nil); err == nil && ok {
		return canonical
	}
	return Arguments(params)
}

// Arguments are the arguments of a request.
func Arguments(params rpc.Object) jsontext.Value {
	if v := params.Get("arguments"); v != nil {
		return v
	}
	return jsontext.Value(`{}`)
}
