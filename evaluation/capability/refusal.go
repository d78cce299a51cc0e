package capability

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
)

// Code says why a capability does not count.
type Code string

// The codes. BadSignature is all that would tell which tokens exist: a wrong signature, key, issuer or tenant, and an
// unknown id.
const (
	Missing            Code = "missing"
	Malformed          Code = "malformed"
	TooLarge           Code = "too_large"
	BadSignature       Code = "bad_signature"
	NotYetValid        Code = "not_yet_valid"
	Expired            Code = "expired"
	Revoked            Code = "revoked"
	Suspended          Code = "suspended"
	UsedUp             Code = "used_up"
	WrongAudience      Code = "wrong_audience"
	WrongHolder        Code = "wrong_holder"
	ToolNotCovered     Code = "tool_not_covered"
	ArgumentRefused    Code = "argument_refused"
	ChannelMismatch    Code = "channel_mismatch"
	ProofMissing       Code = "proof_missing"
	ProofInvalid       Code = "proof_invalid"
	ProofWrongAudience Code = "proof_wrong_audience"
	ProofWrongCall     Code = "proof_wrong_call"
	ProofStale         Code = "proof_stale"
	ProofReplayed      Code = "proof_replayed"
	ArgumentUnprovable Code = "argument_unprovable"
	NonceRequired      Code = "nonce_required"
	OnlineOnly         Code = "online_only"  // this verifier cannot check it, the service can
	StatusStale        Code = "status_stale" // whether it was revoked is not known here
	Elsewhere          Code = "elsewhere"    // another process counts its uses
	ClockSkew          Code = "clock_skew"   // the clock of who verifies may be wrong
	NotInBatch         Code = "not_in_batch"
	NotAsked           Code = "not_asked"   // the question takes no capability
	Unavailable        Code = "unavailable" // it could not be checked
)

// What to do about a refusal, where its code has nothing better.
const (
	askAgain = "Request capability first using capabilities/request"
	proveIt  = "Send the call again with a fresh proof"
	seeTo    = "Check which token is sent, by whom and to which service"
)

// reasons has the text of each code, what the caller can do next, and that in words.
var reasons = map[Code]struct{ text, next, suggestion string }{
	Missing:            {"Missing capability token", evaluation.NextRequest, askAgain},
	Malformed:          {"Invalid capability token", evaluation.NextNone, seeTo},
	TooLarge:           {"Invalid capability token", evaluation.NextNone, seeTo},
	BadSignature:       {"Invalid capability token", evaluation.NextNone, seeTo},
	NotYetValid:        {"Token not yet valid", evaluation.NextRetry, "Send the call again when the token is valid"},
	Expired:            {"Token expired", evaluation.NextRequest, askAgain},
	Revoked:            {"Token revoked", evaluation.NextRequest, askAgain},
	Suspended:          {"Token suspended", evaluation.NextRequest, askAgain},
	UsedUp:             {"Token used up", evaluation.NextRequest, askAgain},
	WrongAudience:      {"Token is for another server", evaluation.NextRequest, askAgain},
	WrongHolder:        {"Caller is not the token's holder", evaluation.NextNone, seeTo},
	ToolNotCovered:     {"Tool not covered by capability", evaluation.NextRequest, askAgain},
	ArgumentRefused:    {"Argument not covered by capability", evaluation.NextRequest, askAgain},
	ChannelMismatch:    {"Token is bound to another channel", evaluation.NextRequest, askAgain},
	ProofMissing:       {"Proof of possession missing", evaluation.NextRetry, proveIt},
	ProofInvalid:       {"Proof of possession invalid", evaluation.NextRetry, proveIt},
	ProofWrongAudience: {"Proof of possession is for another verifier", evaluation.NextRetry, proveIt},
	ProofWrongCall:     {"Proof of possession is for another call", evaluation.NextRetry, proveIt},
	ProofStale:         {"Proof of possession is too old or from the future", evaluation.NextRetry, proveIt},
	ProofReplayed:      {"Proof of possession was used before", evaluation.NextRetry, proveIt},
	ArgumentUnprovable: {"An argument has a number that no proof can hold exactly", evaluation.NextRetry, "Send the number as a string, or with fewer digits"},
	NonceRequired:      {"Fresh nonce required", evaluation.NextRetry, proveIt},
	OnlineOnly:         {"Token must be checked by the authorization service", evaluation.NextRetry, "Ask the authorization service about the call"},
	StatusStale:        {"Token must be checked by the authorization service", evaluation.NextRetry, "Send the call again later, or ask the authorization service about it"},
	Elsewhere:          {"Token must be checked by the authorization service", evaluation.NextRetry, "Ask the service that granted the capability about the call"},
	ClockSkew:          {"Proof of possession cannot be checked: the service's clock may be wrong", evaluation.NextRetry, "Send the call again later"},
	NotInBatch:         {"A capability is not taken in a batch", evaluation.NextRetry, "Send the call alone"},
	NotAsked:           {"A capability is not taken with this question", evaluation.NextNone, "Leave the capability out of this question"},
	Unavailable:        {"Capability could not be checked", evaluation.NextRetry, "Send the call again later"},
}

// Codes are all codes there are.
func Codes() []Code { return slices.Sorted(maps.Keys(reasons)) }

// Known reports whether a code is one of [Codes].
func (c Code) Known() bool {
	_, known := reasons[c]
	return known
}

// Refusal says why a capability does not cover a call. The members besides the code are there where they help.
type Refusal struct {
	Code     Code
	Argument string // the name of the argument that is not covered
	Nonce    string // for the next proof
	Audience string // for which a token or proof has to be
	Tool     string // id of the tool that a token has to cover
	Hint     string // what to do, in place of the usual suggestion
}

// Error quotes nothing that was sent.
func (r *Refusal) Error() string {
	return fmt.Sprintf("%s (%s): %s", r.Text(), r.Code, r.Suggestion())
}

// Text is the reason in words.
func (r *Refusal) Text() string { return reasons[r.Code].text }

// NextAction is what the caller can do: "request" another capability, "retry", or "none".
func (r *Refusal) NextAction() string { return reasons[r.Code].next }

// Suggestion is the next action in words.
func (r *Refusal) Suggestion() string { return cmp.Or(r.Hint, reasons[r.Code].suggestion) }

// The error of JSON-RPC that refuses a call.
const (
	RPCCode    = -32003
	RPCMessage = "Invalid or missing capability token"
)

// RPC is the JSON-RPC error that answers a request. Without an id, the id is null.
func (r *Refusal) RPC(id jsontext.Value) []byte {
	if !id.IsValid() {
		id = jsontext.Value("null")
	}
	data := given(map[string]any{
		"reason": r.Text(), "code": r.Code, "suggestion": r.Suggestion(), "next_action": r.NextAction(),
		"argument": r.Argument, "nonce": r.Nonce, "audience": r.Audience, "id": r.Tool,
	})
	failure := map[string]any{"code": RPCCode, "message": RPCMessage, "data": data}
	return text(map[string]any{"jsonrpc": "2.0", "id": id, "error": failure})
}

// Blocked is the payload of the message tool_call_blocked, for a tool by its name at its owner.
func (r *Refusal) Blocked(tool, owner string) []byte {
	return text(map[string]string{"type": "tool_call_blocked", "reason": BlockedReason(tool, owner), "suggestion": r.Suggestion()})
}

// BlockedReason is the reason in the message tool_call_blocked.
func BlockedReason(tool, owner string) string {
	return fmt.Sprintf("No valid capability for tool '%s' on agent '%s'", tool, owner)
}
