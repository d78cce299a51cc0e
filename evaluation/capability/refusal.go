package capability

import (
	"fmt"

	"github.com/go-json-experiment/json"
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
	ProofMissing       Code = "proof_missing"
	ProofInvalid       Code = "proof_invalid"
	ProofWrongAudience Code = "proof_wrong_audience"
	ProofWrongCall     Code = "proof_wrong_call"
	ProofStale         Code = "proof_stale"
	ProofReplayed      Code = "proof_replayed"
	ArgumentUnprovable Code = "argument_unprovable"
	NonceRequired      Code = "nonce_required"
	OnlineOnly         Code = "online_only" // this verifier cannot check it, the service can
	Elsewhere          Code = "elsewhere"   // another process counts its uses
	NotInBatch         Code = "not_in_batch"
	NotAsked           Code = "not_asked"   // the question takes no capability
	Unavailable        Code = "unavailable" // it could not be checked
)

// reasons has the text and the next action of each code.
var reasons = map[Code]struct{ text, next string }{
	Missing:            {"Missing capability token", evaluation.NextRequest},
	Malformed:          {"Invalid capability token", evaluation.NextNone},
	TooLarge:           {"Invalid capability token", evaluation.NextNone},
	BadSignature:       {"Invalid capability token", evaluation.NextNone},
	NotYetValid:        {"Token not yet valid", evaluation.NextRetry},
	Expired:            {"Token expired", evaluation.NextRequest},
	Revoked:            {"Token revoked", evaluation.NextRequest},
	Suspended:          {"Token suspended", evaluation.NextRequest},
	UsedUp:             {"Token used up", evaluation.NextRequest},
	WrongAudience:      {"Token is for another server", evaluation.NextRequest},
	WrongHolder:        {"Caller is not the token's holder", evaluation.NextNone},
	ToolNotCovered:     {"Tool not covered by capability", evaluation.NextRequest},
	ArgumentRefused:    {"Argument not covered by capability", evaluation.NextRequest},
	ProofMissing:       {"Proof of possession missing", evaluation.NextRetry},
	ProofInvalid:       {"Proof of possession invalid", evaluation.NextRetry},
	ProofWrongAudience: {"Proof of possession is for another verifier", evaluation.NextRetry},
	ProofWrongCall:     {"Proof of possession is for another call", evaluation.NextRetry},
	ProofStale:         {"Proof of possession is too old or from the future", evaluation.NextRetry},
	ProofReplayed:      {"Proof of possession was used before", evaluation.NextRetry},
	ArgumentUnprovable: {"An argument has a number that no proof can hold exactly", evaluation.NextRetry},
	NonceRequired:      {"Fresh nonce required", evaluation.NextRetry},
	OnlineOnly:         {"Token must be checked by the authorization service", evaluation.NextRetry},
	Elsewhere:          {"Token must be checked by the authorization service", evaluation.NextRetry},
	NotInBatch:         {"A capability is not taken in a batch", evaluation.NextRetry},
	NotAsked:           {"A capability is not taken with this question", evaluation.NextNone},
	Unavailable:        {"Capability could not be checked", evaluation.NextRetry},
}

// suggestions has what to do next, by the next action.
var suggestions = map[string]string{
	evaluation.NextRequest: "Request capability first using capabilities/request",
	evaluation.NextRetry:   "Send the call again with a fresh proof",
	evaluation.NextNone:    "Check which token is sent, by whom and to which service",
}

// remedies are suggestions for the codes where a fresh proof alone does not help.
var remedies = map[Code]string{
	NotYetValid:        "Send the call again when the token is valid",
	ArgumentUnprovable: "Send the number as a string, or with fewer digits",
	OnlineOnly:         "Ask the authorization service about the call",
	Elsewhere:          "Ask the service that granted the capability about the call",
	NotInBatch:         "Send the call alone",
	NotAsked:           "Leave the capability out of this question",
	Unavailable:        "Send the call again later",
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
func (r *Refusal) Suggestion() string {
	if r.Hint != "" {
		return r.Hint
	}
	if text, ok := remedies[r.Code]; ok {
		return text
	}
	return suggestions[r.NextAction()]
}

// RPC is the JSON-RPC error that answers a request. Without an id, the id is null.
func (r *Refusal) RPC(id jsontext.Value) []byte {
	type data struct {
		Reason     string `json:"reason"`
		Code       Code   `json:"code"`
		Suggestion string `json:"suggestion"`
		NextAction string `json:"next_action"`
		Argument   string `json:"argument,omitzero"`
		Nonce      string `json:"nonce,omitzero"`
		Audience   string `json:"audience,omitzero"`
		ID         string `json:"id,omitzero"`
	}
	type failure struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
		Data    data   `json:"data"`
	}
	if !id.IsValid() {
		id = jsontext.Value("null")
	}
	return text(struct {
		Version string         `json:"jsonrpc"`
		ID      jsontext.Value `json:"id"`
		Error   failure        `json:"error"`
	}{"2.0", id, failure{-32003, "Invalid or missing capability token", data{
		r.Text(), r.Code, r.Suggestion(), r.NextAction(), r.Argument, r.Nonce, r.Audience, r.Tool}}})
}

// Blocked is the payload of the message tool_call_blocked, for a tool by its name at its owner.
func (r *Refusal) Blocked(tool, owner string) []byte {
	return text(struct {
		Type       string `json:"type"`
		Reason     string `json:"reason"`
		Suggestion string `json:"suggestion"`
	}{"tool_call_blocked", fmt.Sprintf("No valid capability for tool '%s' on agent '%s'", tool, owner), r.Suggestion()})
}

// text is the JSON of what has one. Text that is not valid UTF-8, such as the name of a tool, is mended.
func text(v any) []byte {
	b, err := json.Marshal(v, jsontext.AllowInvalidUTF8(true), json.Deterministic(true))
	if err != nil {
		panic(err)
	}
	return b
}
