package auth

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
)

// Principal is the entity that a caller is to policies, such as a person who
// approves; the zero value is none. It comes from the credential alone: the subject of a request is a claim of the PEP's.
type Principal struct{ Type, ID string }

// maxPrincipal bounds the text of a principal, as it is read and as it is printed.
const maxPrincipal = 512

// ParsePrincipal reads an entity as policies write it, User::"mia", with nothing
// before, between and after. An empty id is refused, though Cedar knows it: a variable that was never set becomes one.
func ParsePrincipal(text string) (Principal, error) {
	typ, rest, _ := strings.Cut(text, `::"`)
	quoted, closed := strings.CutSuffix(rest, `"`)
	id, legal := unescape(quoted)
	p := Principal{typ, id}
	// The printed form is read again, so it is bounded as well: escapes can make it longer.
	if max(len(text), len(p.String())) > maxPrincipal || !utf8.ValidString(text) || !isTypeName(typ) || !closed || !legal || id == "" {
		return Principal{}, fmt.Errorf("a principal is up to %d bytes of an entity as policies write it; try one such as User::\"mia\", with its quotes", maxPrincipal)
	}
	return p, nil
}

// String is the principal as [ParsePrincipal] reads it, on one line whatever its id.
func (p Principal) String() string {
	var b strings.Builder
	b.WriteString(p.Type + `::"`)
	for _, r := range p.ID {
		switch n := slices.Index(escaped, r); {
		case n >= 0:
			b.WriteString(`\` + escapes[n:n+1])
		case unprintable(r):
			fmt.Fprintf(&b, `\u{%x}`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String() + `"`
}

// MarshalText is for keys' files and lists.
func (p Principal) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText is for keys' files and command lines.
func (p *Principal) UnmarshalText(text []byte) (err error) {
	*p, err = ParsePrincipal(string(text))
	return err
}

// check holds to its form a principal that a program put together, or an issuer.
func (p Principal) check() error {
	if again, err := ParsePrincipal(p.String()); err != nil {
		return err
	} else if again != p {
		return errors.New(`the principal is no valid UTF-8; try one such as User::"mia"`)
	}
	return nil
}

// The characters behind a backslash, and their meanings.
const escapes = `"\ntr0'`

var escaped = []rune("\"\\\n\t\r\x00'")

// unescape reads the text between the quotes.
func unescape(text string) (string, bool) {
	var b strings.Builder
	for text != "" {
		r, size := utf8.DecodeRuneInString(text)
		text = text[size:]
		if r == '"' || unicode.IsControl(r) {
			return "", false
		}
		if r == '\\' {
			var legal bool
			if r, text, legal = unescapeOne(text); !legal {
				return "", false
			}
		}
		b.WriteRune(r)
	}
	return b.String(), true
}

// unescapeOne reads the escape behind a backslash.
func unescapeOne(text string) (r rune, rest string, legal bool) {
	if text == "" {
		return 0, "", false
	}
	if n := strings.IndexByte(escapes, text[0]); n >= 0 {
		return escaped[n], text[1:], true
	}
	hex, opened := strings.CutPrefix(text, "u{")
	digits, rest, closed := strings.Cut(hex, "}")
	code, err := strconv.ParseUint(digits, 16, 32)
	legal = opened && closed && err == nil && len(digits) <= 6 && utf8.ValidRune(rune(code))
	return rune(code), rest, legal
}

// isTypeName reports whether policies can name a type of principals so.
func isTypeName(name string) bool {
	parts := strings.Split(name, "::")
	return !slices.ContainsFunc(parts, notIdentifier) && parts[len(parts)-1] != "Action"
}

// reserved are words that are no identifiers of Cedar.
var reserved = []string{"true", "false", "if", "then", "else", "in", "like", "has", "is", "__cedar"}

var identifier = regexp.MustCompile(`^[_A-Za-z][_A-Za-z0-9]*$`)

func notIdentifier(word string) bool {
	return !identifier.MatchString(word) || slices.Contains(reserved, word)
}

// PrincipalClaim is the claim that names the entity of a token's holder. A person that can have the issuer write the claim
// can be every entity of the type.
type PrincipalClaim struct {
	Type  string `yaml:"type" required:"yes" doc:"The type of the entity, as policies write it, with the namespace of the bundle if it has one."`
	Claim string `yaml:"claim" required:"yes" doc:"The claim that is the id of the entity, such as sub: text of 1 to 256 bytes. If a token has anything else there, its holder is no entity and approves nothing."`
}

// maxClaim bounds the id that a token gives.
const maxClaim = 256

func (c *PrincipalClaim) check() error {
	switch {
	case c == nil:
	case !isTypeName(c.Type):
		return errors.New("principal.type is missing or no type of principals; write it as policies do, such as User")
	case !isName(c.Claim):
		return errors.New("principal.claim is missing or not printable; write the name of the claim, such as sub")
	}
	return nil
}

// of is the holder of a verified token, or none. Its claims are read once more and
// strictly: a reader that mends text that is no UTF-8 makes one id of two.
func (c *PrincipalClaim) of(token *jwt.JSONWebToken) Principal {
	if c == nil {
		return Principal{}
	}
	var payload jsontext.Value
	if token.UnsafeClaimsWithoutVerification(&payload) != nil {
		return Principal{}
	}
	var claims map[string]jsontext.Value
	if json.Unmarshal(payload, &claims) != nil {
		return Principal{}
	}
	var id string
	if json.Unmarshal(claims[c.Claim], &id) != nil {
		return Principal{}
	}
	return c.named(id)
}

// in is the holder of a token with claims that were read strictly, or none.
func (c *PrincipalClaim) in(claims evaluation.Object) Principal {
	if c == nil {
		return Principal{}
	}
	said, _ := claims.Lookup(c.Claim)
	if said.Kind() != evaluation.String {
		return Principal{}
	}
	return c.named(said.Text())
}

func (c *PrincipalClaim) named(id string) Principal {
	holder := Principal{c.Type, id}
	if len(id) > maxClaim {
		return Principal{}
	}
	if holder.check() != nil {
		return Principal{}
	}
	return holder
}
