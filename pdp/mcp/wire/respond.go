package wire

import (
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/pdp/mcp/internal/rpc"
)

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

// ReadRespond reads the params of an authorization/respond. The ruling is read by [evaluation.DecodeResponse], as the PDP
// reads it.
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
