package era

import (
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/mcp/internal/rpc"
)

// ownCodes are the codes of the gateway's refusals.
var ownCodes = []int{-32001, ResourceNotFound, -32003, -32401}

// ofResource are the methods to which a server may answer [ResourceNotFound].
var ofResource = []string{"resources/read", "resources/subscribe", "resources/unsubscribe"}

// Relayed is [Response] of the response of a server, without the codes and members that only the gateway uses: those of its
// refusals, of its fulfilments, and of its own _meta.
func Relayed(method, server string, m rpc.Message, from, to Era) rpc.Message {
	if m.Error != nil {
		m.Error = errorFrom(method, server, m.Error)
	} else if o, err := m.ResultObject(); err == nil {
		m.Result = rewritten(m.Result, o, withoutMeta(o, isOwn).Without(isFulfilment))
	}
	return Response(method, m, from, to)
}

// NotificationFrom is a notification of a server without the members that only the gateway uses. The name of one that a list
// has changed says all.
func NotificationFrom(m rpc.Message) rpc.Message {
	if strings.HasSuffix(m.Method, "/list_changed") {
		m.Params = nil
		return m
	}
	if o, err := m.ParamsObject(); err == nil {
		m.Params = rewritten(m.Params, o, withoutMeta(o, isOwn))
	}
	return m
}

func errorFrom(method, server string, v jsontext.Value) jsontext.Value {
	e, err := rpc.ReadError(v)
	if err != nil { // which [Response] has words for
		return v
	}
	o, _ := rpc.ParseObject(v)
	plain := o
	if slices.Contains(ownCodes, e.Code) && !(e.Code == ResourceNotFound && slices.Contains(ofResource, method)) {
		plain = plain.With("code", jsontext.Value(fmt.Sprint(rpc.InternalError))).
			With("message", rpc.String(fmt.Sprintf("the server %s answered with the code %d: %s", server, e.Code, e.Message)))
	}
	if data, err := rpc.ParseObject(e.Data); err == nil {
		less := withoutMeta(data, isOwn).Without(func(name string) bool { return isRefusal(name) || isFulfilment(name) || isOwn(name) })
		plain = plain.With("data", rewritten(e.Data, data, less))
	}
	return rewritten(v, o, plain)
}

// isRefusal reports whether a member of an error's data is one of the gateway's refusals.
func isRefusal(name string) bool {
	return name == "type" || name == "authorizationRequest" || name == "suggestion"
}

func isFulfilment(name string) bool { return name == "fulfilledBy" || name == "originalRequester" }
