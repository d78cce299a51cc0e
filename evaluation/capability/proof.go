package capability

import (
	"bytes"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

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
		if bytes.Contains(c.header, []byte(`"dpop+jwt"`)) {
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
	if r.err != nil || !isID(p.ID) || p.SignedText() != c.signed {
		return Proof{}, refused
	}
	return p, nil
}

// isID reports whether text can be the id of a proof.
func isID(text string) bool { return leastID <= len(text) && len(text) <= mostID && visible(text) }

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
	return signedText(header(p.Algorithm, TypeProof), p.payload())
}

// payload is what the proof says, in the form of RFC 8785. It is written here in order, because it is made for each call.
func (p Proof) payload() []byte {
	b := make([]byte, 0, 512)
	member := func(name, text string) {
		if text != "" {
			b, _ = jsontext.AppendQuote(append(append(append(b, ",\""...), name...), "\":"...), text) // mended if it is no UTF-8
		}
	}
	member("args", p.Arguments)
	member("aud", p.Audience)
	member("cap", p.Capability)
	if issued := p.IssuedAt.Unix(); issued != 0 {
		b = strconv.AppendInt(append(b, `,"iat":`...), issued, 10)
	}
	member("jti", p.ID)
	member("nonce", p.Nonce)
	member("tool", p.Tool)
	if len(b) == 0 {
		return []byte("{}")
	}
	b[0] = '{'
	return append(b, '}')
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

// The values of typ in the header of a token, of a proof, and of the proof of a request. What was signed as one of them
// never passes for another.
const (
	TypeToken   = "cap+jwt"
	TypeProof   = "cap-proof+jwt"
	TypeRequest = "cap-request+jwt"
)

// compact is a JWS in its compact form (RFC 7515, section 7.1). There is one text for it: encodings that other readers
// may take, with line breaks or unused bits, are refused.
type compact struct {
	signed                     string // the first two segments
	header, payload, signature []byte
}

// splitCompact reads a text of at most most bytes.
func splitCompact(text string, most int) (c compact, ok bool) {
	if len(text) > most || strings.Count(text, ".") != 2 {
		return c, false
	}
	decode := func(segment string) []byte {
		b, err := base64url.DecodeString(segment)
		ok = ok && err == nil && base64url.EncodeToString(b) == segment // line breaks are passed over
		return b
	}
	end := strings.LastIndexByte(text, '.')
	c.signed, ok = text[:end], true
	header, payload, _ := strings.Cut(c.signed, ".")
	c.header, c.payload, c.signature = decode(header), decode(payload), decode(text[end+1:])
	return c, ok
}

// header is all that the header of a proof may hold. To compare it as text leaves nothing to be read, and no other
// algorithm or key to be tried.
func header(algorithm, typ string) string {
	return `{"alg":"` + algorithm + `","typ":"` + typ + `"}`
}

// signedText is what is signed.
func signedText(header string, payload []byte) string {
	return base64url.EncodeToString([]byte(header)) + "." + base64url.EncodeToString(payload)
}
