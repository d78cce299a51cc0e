package wire

import (
	"cmp"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/pdp/internal/rpc"
	"policy-service/pdp/internal/visible"
)

// MethodToolRequest is the message of 001 by which a participant asks that another calls a tool.
const MethodToolRequest = "tools/request"

// The notifications of MCP that have a payload of kind system as their params.
const (
	MethodWelcome     = "notifications/welcome"
	MethodPending     = "notifications/tools/request_pending"
	MethodCallBlocked = "notifications/tool_call_blocked"
	// MethodAccess is a notification that a participant may send, and no gateway takes: see [AccessPolicy].
	MethodAccess = "notifications/tool_access_policy"
)

// The kinds of token of a [Welcome].
const (
	TokenFull       = "full"       // some tool can be called
	TokenRestricted = "restricted" // tools can be requested at most
)

// The members of _meta that have the full names where the members beside _meta have short ones, and those by which a call
// names its requester where only _meta can be written.
const (
	metaTool        = "io.policy-service/tool"
	metaParticipant = "io.policy-service/participant"
	metaRequester   = "io.policy-service/requester"
	metaFulfilledBy = "io.policy-service/fulfilledBy"
	metaOriginal    = "io.policy-service/originalRequester"
	metaOnBehalfOf  = "io.policy-service/onBehalfOf"
	metaRequestID   = "io.policy-service/requestId"
)

// Tool is a tool by the name that the client calls it, and by the id that policies know.
type Tool struct{ Name, ID string }

// fullID is an entity as one text. One that is known by its id alone has no type.
func fullID(e evaluation.Ref) string {
	if e.Type == "" {
		return e.ID
	}
	return e.Type + "/" + e.ID
}

// Welcome is 001's welcome: it has the id of the participant, and whether it can do more than ask.
type Welcome struct {
	TokenType   string
	Participant evaluation.Ref
}

// Payload is the payload of kind system, and the params of a [MethodWelcome].
func (w Welcome) Payload() jsontext.Value {
	o := rpc.Object{}.
		With("type", rpc.String("welcome")).
		With("tokenType", rpc.String(w.TokenType)).
		With("participantId", rpc.String(w.Participant.ID))
	return withMeta(o, rpc.Object{}.WithText(metaParticipant, fullID(w.Participant))).Value()
}

// Pending is 001's tool_request_pending: it informs participants of a request for a tool that they can fulfil.
type Pending struct {
	Requester evaluation.Ref
	// Target is the server that has the tool.
	Target string
	Tool   Tool
	// Arguments are an object, or nil for none.
	Arguments jsontext.Value
	RequestID string
	// Reason is that of the requester, "" if it gives none.
	Reason string
}

// Payload is the payload of kind system, and the params of a [MethodPending]. The arguments keep their bytes.
func (p Pending) Payload() jsontext.Value {
	arguments := p.Arguments
	if arguments == nil {
		arguments = jsontext.Value("{}")
	}
	o := rpc.Object{}.
		With("type", rpc.String("tool_request_pending")).
		With("requester", rpc.String(p.Requester.ID)).
		With("target", rpc.String(p.Target)).
		With("tool", rpc.String(p.Tool.Name)).
		With("arguments", arguments).
		With("requestId", rpc.String(p.RequestID)).
		WithText("reason", visible.Text(p.Reason))
	return withMeta(o, rpc.Object{}.WithText(metaRequester, fullID(p.Requester)).WithText(metaTool, p.Tool.ID)).Value()
}

// Blocked is 001's tool_call_blocked: a call was refused before it came to its server.
type Blocked struct {
	Reason string
	// Suggestion is advice, "" if there is none.
	Suggestion string
	// ToolID is the tool, as policies know it.
	ToolID string
}

// Payload is the payload of kind system, and the params of a [MethodCallBlocked].
func (b Blocked) Payload() jsontext.Value {
	o := rpc.Object{}.
		With("type", rpc.String("tool_call_blocked")).
		With("reason", rpc.String(b.Reason)).
		WithText("suggestion", b.Suggestion)
	return withMeta(o, rpc.Object{}.WithText(metaTool, b.ToolID)).Value()
}

// ToolRequest are the params of 001's tools/request: a participant asks that another calls a tool.
type ToolRequest struct {
	Name string
	// Arguments are an object, with its bytes, or nil for none.
	Arguments jsontext.Value
	Reason    string
	// RequestID is that of a request that waits already, "" of a new one.
	RequestID string
}

// ReadToolRequest reads the params of a tools/request.
func ReadToolRequest(params jsontext.Value) (r ToolRequest, err error) {
	o := readObject(params, &err)
	o.misspelt("name", "arguments", "reason", "requestId")
	r.Name, r.RequestID, r.Arguments = o.wanted("name"), o.text("requestId"), o.Get("arguments")
	if string(o.Get("reason")) != `""` { // an empty text is no reason
		r.Reason = o.text("reason")
	}
	if r.Arguments != nil && r.Arguments.Kind() != '{' {
		o.wrong("no object", "arguments")
	}
	return whole(r, err)
}

// Requested is the result of a tools/request that waits to be fulfilled.
func Requested(requestID string) jsontext.Value {
	return rpc.Object{}.With("status", rpc.String("pending")).With("requestId", rpc.String(requestID)).Value()
}

// Fulfilment are the members by which a tools/call of 001 fulfils the request of another.
type Fulfilment struct {
	// OnBehalfOf is the requester's bare id.
	OnBehalfOf string
	RequestID  string
}

// ReadFulfilment reads which request a tools/call fulfils. Given is false if it names none. Both
// stand at the top of params, as 001 prints them, or in _meta with our prefix, where SDKs can write them. The two functions
// give the members of each, nil for one that is not there: the caller has read the call, and nothing of it is read again.
func ReadFulfilment(params, meta func(name string) jsontext.Value) (f Fulfilment, given bool, err error) {
	o := object{err: &err}
	// either is a text that stands in one of two places, or in both and is the same. It is "" if it stands in none.
	either := func(name, metaName string) string {
		one, other := o.textOf(params(name), name), o.textOf(meta(metaName), "_meta", metaName)
		if one != "" && other != "" && one != other {
			o.wrong("not what "+name+" says", "_meta", metaName)
		}
		return cmp.Or(one, other)
	}
	f = Fulfilment{either("onBehalfOf", metaOnBehalfOf), either("requestId", metaRequestID)}
	switch {
	case err == nil && f == Fulfilment{}:
		return f, false, nil
	case f.OnBehalfOf == "":
		o.wrong("missing; a call that fulfils a request says for whom", "onBehalfOf")
	case f.RequestID == "":
		o.wrong("missing; a call that fulfils a request says which", "requestId")
	}
	f, err = whole(f, err)
	return f, true, err
}

// Fulfilled is the result of a call that has fulfilled a request: that of the server, with the ids of the caller and of the
// requester, as 001 prints them. They replace such members of the server's own, and all else keeps its bytes.
func Fulfilled(result jsontext.Value, by, requester evaluation.Ref) (with jsontext.Value, err error) {
	o := readObject(result, &err)
	if err != nil {
		return nil, err
	}
	meta := rpc.Object{}.WithText(metaFulfilledBy, fullID(by)).WithText(metaOriginal, fullID(requester))
	return withMeta(o.With("fulfilledBy", rpc.String(by.ID)).With("originalRequester", rpc.String(requester.ID)), meta).Value(), nil
}

// MethodAuthorizationRequest is the notification of 000 that an approval waits.
const MethodAuthorizationRequest = "notifications/authorization/request"

// Respond are the params of 000's authorization/respond, by which a person decides about an approval request.
type Respond struct {
	AuthorizationID string
	Ruling          evaluation.Ruling
	// Answer goes to the PDP: all that came but _meta, each member with its bytes. Other members, such as arguments, may
	// contradict the ruling, and so none is left out.
	Answer jsontext.Value
}

// ReadRespond reads the params of an authorization/respond, and the ruling as the PDP does: by [evaluation.DecodeResponse].
func ReadRespond(params jsontext.Value, limits evaluation.Limits) (r Respond, err error) {
	o := readObject(params, &err)
	o.misspelt("authorizationId", "decision", "reason", "validUntil", "delegateTo")
	r.AuthorizationID = o.wanted("authorizationId")
	if err != nil {
		return Respond{}, err
	}
	r.Answer = o.Without(func(name string) bool { return name == "_meta" }).Value()
	said, err := evaluation.DecodeResponse(r.Answer, r.AuthorizationID, limits)
	if err != nil {
		return Respond{}, err
	}
	r.Ruling = said.Ruling
	return r, nil
}

// Responded is the result of an authorization/respond: the status of the approval request.
func Responded(authorizationID, status string) jsontext.Value {
	return rpc.Object{}.With("authorizationId", rpc.String(authorizationID)).With("status", rpc.String(status)).Value()
}

// Announced are the params of a [MethodAuthorizationRequest] for a client, made of those of the PDP: the tool has
// the name that the client uses, and the requester the bare id. The PDP's names for them stand in _meta, and all else is
// as it was.
func Announced(params jsontext.Value, tool, requester string) (announced jsontext.Value, err error) {
	o := readObject(params, &err)
	meta := rpc.Object{}.WithText(metaTool, o.wanted("tool")).WithText(metaRequester, o.wanted("requester"))
	if err != nil {
		return nil, err
	}
	return withMeta(o.With("tool", rpc.String(tool)).With("requester", rpc.String(requester)), meta).Value(), nil
}
