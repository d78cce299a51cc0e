package wire

import (
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/pdp/mcp/internal/rpc"
	"policy-service/pdp/visible"
)

// Message is a message of JSON-RPC 2.0, ready to be written as JSON.
type Message struct {
	Version string         `json:"jsonrpc"`
	ID      jsontext.Value `json:"id,omitzero"` // a notification has none
	Method  string         `json:"method,omitempty"`
	Params  any            `json:"params,omitempty"`
	Error   *Error         `json:"error,omitempty"`
}

// Error is the error of a [Message].
type Error struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Data    any    `json:"data"`
}

const version = "2.0"

// The codes of the errors that answer a tool call.
const (
	authorizationRequired = -32001 // the call waits for a person
	authorizationDenied   = -32002 // the call will not happen
)

// authorization is an approval request in the words of MCP: a tool, and the requester of the call.
type authorization struct {
	ID        string            `json:"id"`
	Tool      string            `json:"tool"`
	Arguments evaluation.Object `json:"arguments"`
	Requester string            `json:"requester"`
	Reason    string            `json:"reason"`
	ExpiresAt time.Time         `json:"expiresAt"`
	// Message is the whole approval request as a person reads it.
	Message string `json:"message"`
	wholeRequest
}

// wholeRequest is the request that would be approved. The tool, its arguments and the requester are a part of it.
type wholeRequest struct {
	// Request is the masked request, and Unbound names the parts that may differ when it is done.
	Request jsontext.Value `json:"request"`
	Unbound []string       `json:"unbound,omitempty"`
}

// deniedCall is why a call will not happen.
type deniedCall struct {
	ID     string `json:"authorizationId"`
	Reason string `json:"reason"`
}

// CallID reads the JSON-RPC id of a tool call, which is a whole number or a string in double quotes, so that the
// answer reaches its caller. If text is empty the id is otherwise, as a string.
func CallID(text, otherwise string) (id jsontext.Value, ok bool) {
	if text == "" {
		return rpc.String(otherwise), true
	}
	id = jsontext.Value(text)
	_, err := strconv.ParseInt(text, 10, 64)
	return id, id.IsValid() && (id.Kind() == '"' || err == nil)
}

// AuthorizationRequired answers the tool call id while the call waits for a person.
func (c *Call) AuthorizationRequired(id jsontext.Value) Message {
	return Message{
		Version: version,
		ID:      id,
		Error: &Error{
			Code:    authorizationRequired,
			Message: "authorization required",
			Data: struct {
				Request authorization `json:"authorizationRequest"`
			}{c.authorization()},
		},
	}
}

// AuthorizationDenied answers the tool call id if its approval request ended in a status without an approval, and
// says why.
func AuthorizationDenied(id jsontext.Value, approvalID, status, reason string) Message {
	return Message{
		Version: version,
		ID:      id,
		Error: &Error{
			Code:    authorizationDenied,
			Message: "authorization " + status,
			Data:    deniedCall{approvalID, reason},
		},
	}
}

// Notification informs a client of a call that waits for a person.
func (c *Call) Notification() Message {
	return Message{
		Version: version,
		Method:  MethodAuthorizationRequest,
		Params:  c.authorization(),
	}
}

// authorization is all that a client needs to ask a person about the call.
func (c *Call) authorization() authorization {
	return authorization{
		ID:           c.of.ID,
		Tool:         c.of.Resource.ID,
		Arguments:    c.arguments,
		Requester:    c.requester(),
		Reason:       visible.Text(c.reason()),
		ExpiresAt:    c.of.ExpiresAt,
		Message:      c.question(),
		wholeRequest: wholeRequest{c.of.Request, c.of.Unbound},
	}
}
