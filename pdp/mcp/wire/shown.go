package wire

import (
	"encoding/base64"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/evaluation/capability"
	"policy-service/pdp/internal/rpc"
)

// The members of _meta by which a call shows a capability.
const (
	metaCapability = "io.policy-service/capability"
	metaProof      = "io.policy-service/proof"
)

// MetaNonce is the member of a result's _meta that the next proof of the client has to have as its nonce.
const MetaNonce = "io.policy-service/nonce"

// ShowsCapability reports whether a name is that of a member by which a call shows a capability, in params or in _meta.
func ShowsCapability(name string) bool {
	switch name {
	case "capability", "proof", metaCapability, metaProof:
		return true
	}
	return false
}

// ReadShown reads the capability that a call shows, with its proof: in _meta, or at the top of params, as 001 prints them.
// There the proof may be 001's object. The result is zero if the call shows none. A member that cannot be read is refused:
// the call would be one without a capability. The two functions give the members of each, nil for one that is not there.
func ReadShown(params, meta func(name string) jsontext.Value) (s evaluation.CapabilityShown, refusal *capability.Refusal) {
	if params(metaCapability) != nil || params(metaProof) != nil { // there nothing reads them
		return s, &capability.Refusal{Code: capability.Malformed, Hint: "Show " + metaCapability + " and " + metaProof + " in _meta"}
	}
	token, twice := oneOf(params("capability"), meta(metaCapability))
	proof, proofTwice := oneOf(params("proof"), meta(metaProof))
	switch {
	case token == nil && proof == nil:
		return s, nil
	case twice, proofTwice:
		return s, &capability.Refusal{Code: capability.Malformed, Hint: "Show the capability and its proof once: in _meta, or in params"}
	case token == nil:
		return s, &capability.Refusal{Code: capability.Missing}
	}
	var ok bool
	switch s.Token, ok = textIn(token); {
	case !ok:
		return s, &capability.Refusal{Code: capability.Malformed}
	case len(s.Token) > capability.MaxToken:
		return s, &capability.Refusal{Code: capability.TooLarge}
	}
	if proof == nil {
		return s, nil
	}
	if s.Proof, ok = textIn(proof); !ok && meta(metaProof) == nil {
		s.Proof, ok = proofIn(proof)
	}
	if !ok || len(s.Proof) > capability.MaxProof {
		return s, &capability.Refusal{Code: capability.ProofInvalid}
	}
	return s, nil
}

// oneOf is the value that stands in one of two places. Twice is set if both have one.
func oneOf(one, other jsontext.Value) (v jsontext.Value, twice bool) {
	if one == nil {
		return other, false
	}
	return one, other != nil
}

// textIn is a value that is a string and not empty.
func textIn(v jsontext.Value) (string, bool) {
	var err error
	s := object{err: &err}.textOf(v)
	return s, err == nil
}

// proofIn is the proof in 001's object: the signature is all of the proof, and the timestamp and the nonce are its iat and jti.
func proofIn(v jsontext.Value) (string, bool) {
	var err error
	o := readObject(v, &err)
	stamp, nonce, proof := o.wanted("timestamp"), o.wanted("nonce"), o.wanted("signature")
	_, payload, _ := strings.Cut(proof, ".")
	payload, _, _ = strings.Cut(payload, ".")
	claims, wrong := base64.RawURLEncoding.DecodeString(payload)
	if err != nil || wrong != nil || o.Len() != 3 {
		return "", false
	}
	said, wrong := rpc.ParseObject(claims)
	at, wrongTime := time.Parse(time.RFC3339, stamp)
	return proof, wrong == nil && wrongTime == nil && at.Nanosecond() == 0 &&
		string(said.Get("iat")) == strconv.FormatInt(at.Unix(), 10) && said.GetString("jti") == nonce
}
