package ask

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient"
	"policy-service/evaluation/authzenclient/approvals"
	"policy-service/evaluation/coaz"
	"policy-service/pdp/internal/mcp/internal/era"
	"policy-service/pdp/internal/mcp/internal/identity"
	"policy-service/pdp/internal/rpc"
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
	// Shows is the capability that the call shows, zero if it shows none. A request for a tool is Fulfilled while another
	// makes the call: only then is what it shows spent.
	Shows     evaluation.CapabilityShown
	Fulfilled bool
	// Kept is set if the gateway made the proof, by a key that it keeps for the principal.
	Kept bool
	// Answered is people's answer to the same call before; zero if they were not asked.
	Answered Answered

	// read is all Params, once they are needed. Whoever sets Params sets it to nil: else the PDP would decide about other
	// params than go on.
	read *evaluation.Object
}

// Answered is the part of people's answer that the last question brings: one of the two at the most. The PDP decides on it.
type Answered struct {
	Standing  *approvals.Standing         // that people approved the call
	Continues *authzenclient.Continuation // that they did before, and that it goes on
}

func (a Answered) given() bool { return a.Standing != nil || a.Continues != nil }

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

// whole is all params, as mappings read them.
func (op *Operation) whole() (evaluation.Object, error) {
	if op.read == nil {
		o, err := evaluation.ParseWithNulls(op.Params.Value(), boundsOf(1))
		if err != nil {
			return o, below("/params", err)
		}
		op.read = &o
	}
	return *op.read, nil
}

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

const (
	toolsCall     = "tools/call"
	toolsList     = "tools/list"
	promptsGet    = "prompts/get"
	promptsList   = "prompts/list"
	resourcesRead = "resources/read"
	resourcesList = "resources/list"
	templatesList = "resources/templates/list"
	subscribe     = "resources/subscribe"
	listen        = "subscriptions/listen"
	discover      = "server/discover"
	complete      = "completion/complete"
)

// eras are the methods that only one era has.
var eras = map[string]era.Era{
	"initialize": era.Legacy, "ping": era.Legacy, "logging/setLevel": era.Legacy, subscribe: era.Legacy, "resources/unsubscribe": era.Legacy,
	"tasks/list": era.Legacy, "tasks/result": era.Legacy,
	discover: era.Modern, listen: era.Modern,
}

func isTask(method string) bool { return strings.HasPrefix(method, "tasks/") }

// asks reports whether the PDP is asked about a method. If not, the request goes on without, or is refused.
func (a *Asker) asks(w refuser, op *Operation) (bool, *Refusal) {
	const unmapped = "the method has no mapping"
	of, only := eras[op.Method]
	_, verdict := a.binding.Default(op.Method)
	switch {
	case only && of != op.Era:
		return false, w.unknownMethod()
	case isTask(op.Method):
		return false, w.denial("", unmapped)
	case op.Method == toolsRequest && a.Requests(), a.operator[op.Method] != nil:
		return true, nil
	case op.Method == "ping", op.Method == rpc.Respond: // the PDP decides about messages to people when it gets them
		return false, nil
	case verdict == coaz.Mapped:
		return true, nil
	case a.binding.Forgotten(op.Method) == nil:
		return false, w.unknownMethod()
	case a.o.Strict:
		return false, w.denial("", unmapped)
	}
	return true, nil
}

// defaults are the questions of the binding about a method, or ours if it forgot the method. For listening to a resource they
// are also those about a subscription to it.
func (a *Asker) defaults(op *Operation) ([]evaluation.Request, error) {
	all, err := op.whole()
	if err != nil {
		return nil, err
	}
	requests, err := a.defaultOf(op.Method, all, op.Principal.Claims)
	if err != nil || op.Method != listen {
		return requests, err
	}
	uris, err := subscriptions(all)
	if err != nil {
		return nil, err
	}
	for _, uri := range uris {
		more, err := a.defaultOf(subscribe, evaluation.Object{}.With("uri", uri), op.Principal.Claims)
		if err != nil {
			return nil, err
		}
		requests = append(requests, more...)
	}
	return requests, nil
}

func (a *Asker) defaultOf(method string, params, token evaluation.Object) ([]evaluation.Request, error) {
	m, _ := a.binding.Default(method)
	m = cmp.Or(m, a.binding.Forgotten(method))
	asked, err := m.Questions(coaz.Operation{Method: method, Params: params, Token: admitted(token)})
	return slices.Clone(asked.Requests), err
}

// admitted are the claims for the binding's own mappings, which read the audience to name this server. Whether a token is
// for us has been found out by then, and the operator may have us expect another audience than the name of the server.
func admitted(token evaluation.Object) evaluation.Object {
	return token.Without(func(name string) bool { return name == "aud" })
}

// mostSubscriptions bounds the questions that one message may cause.
const mostSubscriptions = 64

func subscriptions(params evaluation.Object) (uris []evaluation.Value, err error) {
	const at = "/params/notifications"
	notifications, given := params.Get("notifications")
	if given && notifications.Kind() != evaluation.Map {
		return nil, wrong(at, "not an object")
	}
	list, given := notifications.Object().Get("resourceSubscriptions")
	if given && list.Kind() != evaluation.Array {
		return nil, wrong(at+"/resourceSubscriptions", "not an array")
	}
	for n, v := range list.Elements {
		if v.Kind() != evaluation.String || v.Text() == "" {
			return nil, wrong(fmt.Sprintf("%s/resourceSubscriptions/%d", at, n), "not a URI")
		}
		if n == mostSubscriptions {
			return nil, wrong(at+"/resourceSubscriptions", fmt.Sprintf("more than %d; listen once more for the others", mostSubscriptions))
		}
		uris = append(uris, v)
	}
	return uris, nil
}

// inMeta is where a member of _meta stands in a request, a JSON Pointer.
func inMeta(name string) string { return string(jsontext.Pointer("/params/_meta").AppendToken(name)) }
