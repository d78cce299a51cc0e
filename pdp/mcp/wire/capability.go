package wire

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/pdp/internal/rpc"
)

// The messages about capabilities. The first is of 001.
const (
	MethodCapabilityRequest  = "capabilities/request"
	MethodCapabilityValidate = "capabilities/validate"
	MethodCapabilityRevoke   = "capabilities/revoke"
	MethodCapabilityList     = "capabilities/list"
	// MethodCapabilityRevoked is the notification that a capability counts no more.
	MethodCapabilityRevoked = "notifications/capabilities/revoked"
)

// IsCapability reports whether a method is one of the requests about capabilities.
func IsCapability(method string) bool {
	return slices.Contains([]string{MethodCapabilityRequest, MethodCapabilityValidate, MethodCapabilityRevoke, MethodCapabilityList}, method)
}

// metaKey is the member of _meta for the holder's key, where SDKs can write it.
const metaKey = "io.policy-service/key"

// termsOfRequest are the members of a request that the PDP reads as they came.
var termsOfRequest = []string{"duration", "valid_from", "valid_until", "max_uses", "max_depth", "offline", "arguments", "reason", "approval_id"}

// CapabilityRequest are the params of 001's capabilities/request, and more of ours. The holder is none of them.
type CapabilityRequest struct {
	// Tools are by the names that the client knows, or [AllTools] alone.
	Tools []string
	// Audience is the server, Renews the id of the capability that is to be renewed, and ApprovalID that of the approval that
	// people were asked for; "" if they are not given.
	Audience, Renews, ApprovalID string
	// Key is the holder's key, nil for none, and Proof the proof of it.
	Key   jsontext.Value
	Proof string
	// InSession is set if it is to count in the session of the request alone.
	InSession bool
	// Terms are the other members, with their bytes.
	Terms Object
}

// ReadCapabilityRequest reads the params of a capabilities/request. An unknown member is a mistake: it could bound what is granted.
func ReadCapabilityRequest(params jsontext.Value) (r CapabilityRequest, err error) {
	o := readObject(params, &err)
	o.only(append([]string{"tools", "audience", "renews", "key", "proof", "channel", "_meta"}, termsOfRequest...)...)
	if v := o.Get("tools"); v.Kind() == '"' && o.textOf(v, "tools") == AllTools {
		r.Tools = []string{AllTools}
	} else {
		r.Tools = o.texts("tools", `neither an array of names nor "*"`, "no tools; name those that are to be called")
	}
	r.Audience, r.Renews, r.ApprovalID = o.text("audience"), o.text("renews"), o.text("approval_id")
	switch channel := o.text("channel"); channel {
	case "session":
		r.InSession = true
	case "":
	default:
		o.wrong("not session, which is the only one that there is", "channel")
	}
	meta := o.GetObject("_meta")
	if r.Key = o.either("key", o.Get("key"), metaKey, meta.Get(metaKey)); r.Key != nil && r.Key.Kind() != '{' {
		o.wrong("no object; a key is a JWK", "key")
	}
	r.Proof = o.proof(o.either("proof", o.Get("proof"), metaProof, meta.Get(metaProof)))
	for _, name := range termsOfRequest {
		if v := o.Get(name); v != nil {
			r.Terms = r.Terms.With(name, v)
		}
	}
	return whole(r, err)
}

// proof is a proof, as its text or as 001's object.
func (o object) proof(v jsontext.Value) string {
	if v.Kind() != '{' {
		return o.textOf(v, "proof")
	}
	proof, ok := proofIn(v)
	if !ok {
		o.wrong("no proof; its signature is all of the proof, and its timestamp and nonce are the iat and jti of that", "proof")
	}
	return proof
}

// either is a value that stands in params, or in _meta, or in both and is the same. It is nil if it stands in none.
func (o object) either(name string, one jsontext.Value, metaName string, other jsontext.Value) jsontext.Value {
	switch {
	case one == nil:
		return other
	case other != nil && string(one) != string(other):
		o.wrong("not what "+name+" says", "_meta", metaName)
	}
	return one
}

// CapabilityGrant is a grant.
type CapabilityGrant struct {
	ID, Token string
	// Tools are by the names that the client knows, and IDs as policies know them.
	Tools, IDs         []string
	Audience           string
	ValidFrom, Expires time.Time
	MaxUses            int // 0 for any number
	Verify             string
	Narrowed           []string
	// HolderKey is the keeper of the key, if that is not the holder.
	HolderKey string
}

// Result is 001's grant, and more of ours.
func (g CapabilityGrant) Result() jsontext.Value {
	o := rpc.Object{}.
		With("token", rpc.String(g.Token)).
		With("tools", rpc.Strings(g.Tools)).
		With("expires", rpc.String(g.Expires.UTC().Format(time.RFC3339))).
		With("signature", rpc.String(g.Token[strings.LastIndexByte(g.Token, '.')+1:])).
		With("id", rpc.String(g.ID)).
		With("tool_ids", rpc.Strings(g.IDs)).
		With("audience", rpc.String(g.Audience)).
		With("valid_from", rpc.String(g.ValidFrom.UTC().Format(time.RFC3339))).
		With("expires_in", number(int(g.Expires.Sub(g.ValidFrom)/time.Second)))
	if g.MaxUses > 0 {
		o = o.With("max_uses", number(g.MaxUses))
	}
	o = o.WithText("verify", g.Verify).WithText("holder_key", g.HolderKey)
	if len(g.Narrowed) > 0 {
		o = o.With("narrowed", rpc.Strings(g.Narrowed))
	}
	return o.Value()
}

func number(n int) jsontext.Value { return jsontext.Value(strconv.Itoa(n)) }

// CapabilityUse are the params of a capabilities/validate: a call, and the capability that it would show.
type CapabilityUse struct {
	Shown evaluation.CapabilityShown
	Tool  string
	// Arguments are an object, with its bytes, or nil for none.
	Arguments jsontext.Value
}

// ReadCapabilityUse reads the params of a capabilities/validate.
func ReadCapabilityUse(params jsontext.Value) (u CapabilityUse, err error) {
	o := readObject(params, &err)
	o.only("capability", "proof", "name", "tool", "arguments", "_meta")
	shown, refusal := ReadShown(o.Get, o.GetObject("_meta").Get)
	if refusal != nil {
		o.wrong(refusal.Text(), "capability")
	}
	u.Shown = shown
	u.Tool = cmp.Or(o.text("name"), o.text("tool"))
	u.Arguments = o.Get("arguments")
	switch {
	case u.Shown.Token == "":
		o.wrong("missing; it is the token, or its id", "capability")
	case u.Tool == "":
		o.wrong("missing; it is the tool that would be called", "name")
	case u.Arguments != nil && u.Arguments.Kind() != '{':
		o.wrong("no object", "arguments")
	}
	return whole(u, err)
}

// ReadCapabilityRevoke reads the params of a capabilities/revoke. The reason is "" if there is none.
func ReadCapabilityRevoke(params jsontext.Value) (id, reason string, err error) {
	o := readObject(params, &err)
	o.only("id", "reason", "_meta")
	id, reason = o.wanted("id"), o.text("reason")
	if err != nil {
		return "", "", err
	}
	return id, reason, nil
}

// CapabilityRevoked are the params of a [MethodCapabilityRevoked].
func CapabilityRevoked(id string) jsontext.Value {
	return rpc.Object{}.With("id", rpc.String(id)).Value()
}

// ToolCapability is the member of a tool's _meta by which an agent learns how to ask for a capability of its calls.
func ToolCapability(id, audience, need string) Object {
	return rpc.Object{}.With("id", rpc.String(id)).With("audience", rpc.String(audience)).With("capability", rpc.String(need))
}
