package wire

import (
	"math"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/pdp/internal/rpc"
	"policy-service/pdp/internal/visible"
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
	return refusal(id, authorizationRequired, "authorization required", struct {
		Request authorization `json:"authorizationRequest"`
	}{c.authorization()})
}

// AuthorizationDenied answers the tool call id if its approval request ended without an approval, and says why.
func AuthorizationDenied(id jsontext.Value, approvalID, status, reason string) Message {
	return refusal(id, authorizationDenied, "authorization "+status, deniedCall{approvalID, reason})
}

func refusal(id jsontext.Value, code int, message string, data any) Message {
	return Message{Version: version, ID: id, Error: &Error{code, message, data}}
}

// Notification informs a client of a call that waits for a person.
func (c *Call) Notification() Message {
	return Message{Version: version, Method: MethodAuthorizationRequest, Params: c.authorization()}
}

// authorization is all that a client needs to ask a person about the call.
func (c *Call) authorization() authorization {
	return authorization{
		ID:           c.of.ID,
		Tool:         c.of.Resource.ID,
		Arguments:    c.arguments,
		Requester:    c.requester(),
		Reason:       visible.Quoted(c.saysPolicy()),
		ExpiresAt:    c.of.ExpiresAt,
		Message:      c.question(),
		wholeRequest: wholeRequest{c.of.Request, c.of.Unbound},
	}
}

// elicitParams are the parameters of elicitation/create. The members that MCP does not name stand in them twice: SDKs
// hand on only _meta, and other readers of these messages look for metadata.
type elicitParams struct {
	Meta     elicitMeta `json:"_meta"`
	Message  string     `json:"message"`
	Schema   Form       `json:"requestedSchema"`
	Metadata elicitMeta `json:"metadata"`
}

type elicitMeta struct {
	Type     string          `json:"elicitationType"`
	Timeout  int64           `json:"timeout"` // seconds, rounded up: every request that waits has one
	Priority string          `json:"priority"`
	Original originalRequest `json:"originalRequest"`
}

type originalRequest struct {
	From      string            `json:"from"`
	Tool      string            `json:"tool"`
	Arguments evaluation.Object `json:"arguments"`
	RequestID string            `json:"requestId"`
	wholeRequest
}

// Form is a form for a person, in the JSON Schema that MCP allows: a flat object of primitive fields.
type Form struct {
	Type       string           `json:"type"`
	Properties map[string]Field `json:"properties"`
	Required   []string         `json:"required"`
}

// Field is one field of a [Form].
type Field struct {
	Type        string         `json:"type"`
	Title       string         `json:"title,omitempty"`
	Description string         `json:"description,omitempty"`
	Enum        []string       `json:"enum,omitempty"`
	MaxLength   int            `json:"maxLength,omitzero"`
	Default     jsontext.Value `json:"default,omitzero"`
}

// Form makes a form by its name: approve, choose or review. For "" it makes the one that the obligation asks for. Ok is
// false if there is no form of that name. A reason has at most maxReason characters. No field has an approval as its
// default.
//
// The form that the obligation asks for lets an approver delegate where that is possible, and so does choose. The other
// two ask for yes or no, for a client that shows nothing else.
func (c *Call) Form(name string, maxReason int) (f Form, ok bool) {
	of, ok := map[string]struct{ review, choose bool }{
		"": {c.of.Review, c.of.Delegable}, "approve": {}, "choose": {choose: true}, "review": {review: true},
	}[name]
	if !ok {
		return f, false
	}
	decision, fields := "approve", map[string]Field{"reason": {Type: "string", Title: "Reason", MaxLength: maxReason}}
	if of.choose {
		words := []string{"approve", "deny"}
		if c.of.Delegable {
			words = append(words, "delegate")
			fields["delegateTo"] = Field{Type: "string", Title: "Delegate to", Description: `Who decides instead, as policies name them, such as User::"mia".`}
		}
		decision, fields["action"] = "action", Field{Type: "string", Title: "Decision", Enum: words}
	} else {
		fields["approve"] = Field{Type: "boolean", Title: "Approve"}
	}
	if of.review {
		for argument, v := range c.arguments.Members { // none is required: a lone yes is to the call as it is
			if hasField(argument, v) {
				fields[evaluation.ArgumentPrefix+argument] = argumentField(argument, v)
			}
		}
	}
	return Form{Type: "object", Properties: fields, Required: []string{decision}}, true
}

// Elicitation is a whole elicitation/create, for the MCP client of an approver.
func (c *Call) Elicitation(f Form, now time.Time) Message {
	meta := elicitMeta{
		Type:     "tool_approval",
		Timeout:  int64((max(0, c.of.ExpiresAt.Sub(now)) + time.Second - 1) / time.Second),
		Priority: "normal",
		Original: originalRequest{
			From: c.requester(), Tool: c.of.Resource.ID, Arguments: c.arguments, RequestID: c.of.Decision,
			wholeRequest: wholeRequest{c.of.Request, c.of.Unbound},
		},
	}
	return c.elicits(elicitParams{Meta: meta, Message: c.question(), Schema: f, Metadata: meta})
}

func (c *Call) elicits(params any) Message {
	return Message{Version: version, ID: rpc.String(c.of.ID), Method: "elicitation/create", Params: params}
}

type addressParams struct {
	Mode    string `json:"mode"`
	ID      string `json:"elicitationId"`
	URL     string `json:"url"`
	Message string `json:"message"`
}

// AtAddress is a whole elicitation/create that sends an approver to a page, where they log in and decide.
func (c *Call) AtAddress(url string) Message {
	return c.elicits(addressParams{"url", c.of.ID, url, c.question()})
}

// hasField reports whether a person can edit an argument in a field. One whose name or value is not as it is drawn, or that is
// null, stands in the text alone.
func hasField(argument string, v evaluation.Value) bool {
	return v.Kind() != evaluation.Null && argument != "" && visible.AsDrawn(argument) && visible.AsDrawn(fieldValue(v).Text())
}

func argumentField(argument string, v evaluation.Value) Field {
	v = fieldValue(v)
	kind := map[evaluation.Kind]string{evaluation.Bool: "boolean", evaluation.Number: "number", evaluation.String: "string"}[v.Kind()]
	if _, err := strconv.ParseInt(v.Text(), 10, 64); err == nil && v.Kind() == evaluation.Number {
		kind = "integer"
	}
	return Field{Type: kind, Title: visible.Text(argument), Default: jsontext.Value(jsonText(v))}
}

// fieldValue is a value as a field holds it: objects, arrays, and numbers that many programs would round, are JSON text.
func fieldValue(v evaluation.Value) evaluation.Value {
	switch v.Kind() {
	case evaluation.Bool, evaluation.String:
		return v
	case evaluation.Number:
		if exact(v) {
			return v
		}
	}
	text, _ := evaluation.Text(jsonText(v)) // which is UTF-8
	return text
}

// exact reports whether a number survives programs that have only floats.
func exact(v evaluation.Value) bool {
	f, err := strconv.ParseFloat(v.Text(), 64)
	if err != nil || math.Abs(f) > 1<<53 {
		return false
	}
	kept, err := evaluation.NewObject(map[string]any{"n": f})
	n, _ := kept.Get("n")
	return err == nil && equal(n, v)
}
