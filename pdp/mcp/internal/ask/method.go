package ask

import (
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/evaluation/coaz"
	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/rpc"
)

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
)

// forgotten are methods that the binding has no default for, and without which a client of the modern era cannot connect.
var forgotten = []string{discover, templatesList, listen}

// eras are the methods that only one era has.
var eras = map[string]era.Era{
	"initialize": era.Legacy, "ping": era.Legacy, "logging/setLevel": era.Legacy, subscribe: era.Legacy, "resources/unsubscribe": era.Legacy,
	"tasks/list": era.Legacy, "tasks/result": era.Legacy,
	discover: era.Modern, listen: era.Modern,
}

// isTask reports whether a method is of the tasks, which there are none of.
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
	case !slices.Contains(forgotten, op.Method):
		return false, w.unknownMethod()
	case a.o.Strict:
		return false, w.denial("", unmapped)
	}
	return true, nil
}

// defaults are the questions of the binding about a method. For one that it forgot they are those about a list, by another
// action; and for listening to a resource, those about a subscription to it.
func (a *Asker) defaults(op *Operation, params *parameters) ([]evaluation.Request, error) {
	all, err := params.whole()
	if err != nil {
		return nil, err
	}
	if !slices.Contains(forgotten, op.Method) {
		return a.defaultOf(op.Method, all, op.Principal.Claims)
	}
	requests, err := a.defaultOf(toolsList, evaluation.Object{}, op.Principal.Claims)
	if err != nil {
		return nil, err
	}
	for n := range requests {
		requests[n].Action.Name = op.Method
	}
	if op.Method != listen {
		return requests, nil
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

// defaultOf is the binding's own questions about a method.
func (a *Asker) defaultOf(method string, params, token evaluation.Object) ([]evaluation.Request, error) {
	m, _ := a.binding.Default(method)
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

// subscriptions are the resources that a listener wants to hear of.
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
