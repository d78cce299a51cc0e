package wire

import (
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/pdp/mcp/internal/rpc"
)

// The notifications of MCP that have a payload of kind system as their params.
const (
	MethodWelcome     = "notifications/welcome"
	MethodPending     = "notifications/tools/request_pending"
	MethodCallBlocked = "notifications/tool_call_blocked"
	// MethodAccess is a notification that a participant may send, and no gateway takes: see [AccessPolicy].
	MethodAccess = "notifications/tool_access_policy"
)

// systemTypes are the payloads of kind system by their type, as 001 prints it, and the notifications that they are on MCP.
var systemTypes = []struct{ payload, method string }{
	{typeWelcome, MethodWelcome},
	{typePending, MethodPending},
	{typeBlocked, MethodCallBlocked},
	{typeAccess, MethodAccess},
}

// Message is the form of an envelope on MCP: a message of JSON-RPC. Of kind mcp that is the payload, and of kind system it is a
// notification that has the payload as its params. Both keep their bytes.
func (e Envelope) Message() (jsontext.Value, error) {
	payload, err := readObject(e.Payload, "payload")
	if err != nil {
		return nil, err
	}
	if e.Kind == KindMCP {
		said, method, err := head(payload, "payload")
		switch {
		case err != nil:
			return nil, err
		case said != version:
			return nil, evaluation.Malformed("no message of JSON-RPC 2.0", "", "payload", "jsonrpc")
		case typeOf(method) != "": // two payloads would be one message
			return nil, evaluation.Malformed("it is of kind system", "", "payload", "method")
		}
		return e.Payload, nil
	}
	kind, err := payload.wanted("type", "payload")
	if err != nil {
		return nil, err
	}
	for _, s := range systemTypes {
		if e.Kind == KindSystem && s.payload == kind {
			return rpc.Object{}.WithText("jsonrpc", version).WithText("method", s.method).With("params", e.Payload).Value(), nil
		}
	}
	return nil, evaluation.Malformed("there is no message of MCP for it", "", "payload", "type")
}

// Enveloped is the kind and the payload of the envelope of a message of MCP: [Envelope.Message] makes that message of them.
func Enveloped(message jsontext.Value) (kind string, payload jsontext.Value, err error) {
	o, err := readObject(message)
	if err != nil {
		return "", nil, err
	}
	said, method, err := head(o)
	switch {
	case err != nil:
		return "", nil, err
	case said != version:
		return "", nil, evaluation.Malformed("no message of JSON-RPC 2.0", "", "jsonrpc")
	case typeOf(method) == "":
		return KindMCP, message, nil
	case o.Get("id") != nil:
		return "", nil, evaluation.Malformed("a notification has none", "", "id")
	}
	params, err := readObject(o.Get("params"), "params")
	if err != nil {
		return "", nil, err
	}
	switch is, err := params.wanted("type", "params"); {
	case err != nil:
		return "", nil, err
	case is != typeOf(method):
		return "", nil, evaluation.Malformed("not the type that the method has", "", "params", "type")
	}
	return KindSystem, o.Get("params"), nil
}

// head are the members with which every message of JSON-RPC begins. A response has no method.
func head(o object, at ...string) (said, method string, err error) {
	if said, err = o.wanted("jsonrpc", at...); err != nil {
		return "", "", err
	}
	method, err = o.text("method", at...)
	return said, method, err
}

// typeOf is the type of the payload that a method has as its params, "" if the method is none of kind system.
func typeOf(method string) string {
	for _, s := range systemTypes {
		if s.method == method {
			return s.payload
		}
	}
	return ""
}
