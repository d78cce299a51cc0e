package capability

import (
	"fmt"
	"strings"
)

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
	end := strings.LastIndexByte(text, '.')
	c.signed = text[:end]
	head, payload, _ := strings.Cut(c.signed, ".")
	for _, segment := range []struct {
		text string
		into *[]byte
	}{{head, &c.header}, {payload, &c.payload}, {text[end+1:], &c.signature}} {
		b, err := base64url.DecodeString(segment.text)
		if err != nil || base64url.EncodeToString(b) != segment.text {
			return c, false
		}
		*segment.into = b
	}
	return c, true
}

// header is all that the header of a proof may hold. To compare it as text leaves nothing to be read, and no other
// algorithm or key to be tried.
func header(algorithm, typ string) string {
	return fmt.Sprintf(`{"alg":%q,"typ":%q}`, algorithm, typ)
}

// signedText is what is signed.
func signedText(header string, payload []byte) string {
	return base64url.EncodeToString([]byte(header)) + "." + base64url.EncodeToString(payload)
}
