package capability

import (
	"bytes"
	"strings"
	"time"

	"policy-service/evaluation"
)

// Proof is a proof of possession that was read: its members are all that it says, so that it can be rebuilt from them.
//
// Its header is {"alg":…,"typ":"cap-proof+jwt"}, and its payload an object in the form of RFC 8785, with nothing else:
//
//	{"args":…,"aud":…,"cap":…,"iat":…,"jti":…,"nonce":…,"tool":…}
//
// The nonce alone may be left out. A new member would be one more that records have to hold.
type Proof struct {
	Capability string    // cap: the id of the token
	Audience   string    // aud: the name of who verifies
	Tool       string    // tool: the id of the tool
	Arguments  string    // args: see [HashArguments]
	IssuedAt   time.Time // iat
	ID         string    // jti: 16 to 128 visible characters of ASCII
	Nonce      string    // nonce: of who verifies, "" if there is none
	Algorithm  string    // alg
	Signature  string    // the third segment
}

const leastID, mostID = 16, 128 // characters

// ParseProof reads a proof that a key signed.
func ParseProof(text string, key Key) (Proof, *Refusal) {
	refused := &Refusal{Code: ProofInvalid}
	c, o, ok := readProof(text, TypeProof, key)
	if !ok {
		if c, split := splitCompact(text, MaxProof); split && bytes.Contains(c.header, []byte(`"dpop+jwt"`)) {
			refused.Hint = "Send a proof of type " + TypeProof + ": DPoP says nothing about the tool and its arguments"
		}
		return Proof{}, refused
	}
	var r reader
	p := Proof{
		Capability: r.text(o, maxURL, false, "cap"),
		Audience:   r.text(o, maxURL, false, "aud"),
		Tool:       r.text(o, maxURL, false, "tool"),
		Arguments:  r.text(o, maxURL, false, "args"),
		IssuedAt:   r.time(o, "iat"),
		ID:         r.text(o, mostID, false, "jti"),
		Nonce:      r.text(o, maxURL, true, "nonce"),
		Algorithm:  key.Algorithm(),
		Signature:  text[len(c.signed)+1:],
	}
	if r.err != nil || !visible(p.ID) || len(p.ID) < leastID || p.SignedText() != c.signed {
		return Proof{}, refused
	}
	return p, nil
}

// visible reports whether text is of visible characters of ASCII.
func visible(text string) bool {
	return strings.IndexFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }) < 0
}

// readProof reads what a key signed as a type.
func readProof(text, typ string, key Key) (c compact, o evaluation.Object, ok bool) {
	c, ok = splitCompact(text, MaxProof)
	if !ok || key.IsZero() || string(c.header) != header(key.Algorithm(), typ) || !key.verifies(c.signed, c.signature) {
		return c, o, false
	}
	o, err := evaluation.ParseWithNulls(c.payload, wide)
	return c, o, err == nil
}

// SignedText is what was signed: the first two segments of the proof.
func (p Proof) SignedText() string {
	return signedText(header(p.Algorithm, TypeProof), canonical(struct {
		Arguments  string `json:"args"`
		Audience   string `json:"aud"`
		Capability string `json:"cap"`
		IssuedAt   int64  `json:"iat"`
		ID         string `json:"jti"`
		Nonce      string `json:"nonce,omitzero"`
		Tool       string `json:"tool"`
	}{p.Arguments, p.Audience, p.Capability, p.IssuedAt.Unix(), p.ID, p.Nonce, p.Tool}))
}

// Text is the proof as it was sent.
func (p Proof) Text() string { return p.SignedText() + "." + p.Signature }

// VerifiedBy reports whether the key signed what the members say.
func (p Proof) VerifiedBy(key Key) bool {
	signature, err := base64url.DecodeString(p.Signature)
	return err == nil && p.Algorithm == key.Algorithm() && key.verifies(p.SignedText(), signature)
}

// window reports whether something was issued within age before now, and at most skew after it. Both ends are within.
func window(issued, now time.Time, age, skew time.Duration) bool {
	behind := now.Unix() - issued.Unix()
	return -seconds(skew) <= behind && behind <= seconds(age)
}

func seconds(d time.Duration) int64 { return int64(d / time.Second) }
