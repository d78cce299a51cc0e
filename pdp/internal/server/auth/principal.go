package auth

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"policy-service/evaluation"
)

// Principal is the entity that a caller is to policies, such as a person who
// approves; the zero value is none. It comes from the credential alone: the subject of a request is a claim of the PEP's.
type Principal struct{ Type, ID string }

// maxPrincipal bounds the text of a principal, as it is read and as it is printed.
const maxPrincipal = 512

// principalForm is an entity as policies write it, with nothing before, between and after, and with an id. Cedar knows an
// empty id: here it is refused, because a variable that was never set becomes one.
var principalForm = regexp.MustCompile(`^([_A-Za-z0-9:]+)::"((?:[^"\\\p{Cc}]|\\(?:["\\ntr0']|u\{[0-9A-Fa-f]{1,6}\}))+)"$`)

// ParsePrincipal reads an entity as policies write it, User::"mia".
func ParsePrincipal(text string) (Principal, error) {
	if found := principalForm.FindStringSubmatch(text); found != nil && len(text) <= maxPrincipal && utf8.ValidString(text) && isTypeName(found[1]) {
		id, legal := unescape(found[2])
		// The printed form is read again, so it is bounded as well: escapes can make it longer.
		if p := (Principal{found[1], id}); legal && len(p.String()) <= maxPrincipal {
			return p, nil
		}
	}
	return Principal{}, fmt.Errorf("a principal is up to %d bytes of an entity as policies write it; try one such as User::\"mia\", with its quotes", maxPrincipal)
}

// The characters behind a backslash, and their meanings.
const escapes = `"\ntr0'`

var (
	escaped = []rune("\"\\\n\t\r\x00'")
	escape  = regexp.MustCompile(`\\(?:u\{[0-9A-Fa-f]+\}|.)`)
)

// unescape reads the text between the quotes. It is not legal if it names a code point that is no character.
func unescape(text string) (id string, legal bool) {
	legal = true
	id = escape.ReplaceAllStringFunc(text, func(one string) string {
		if n := strings.IndexByte(escapes, one[1]); n >= 0 {
			return string(escaped[n])
		}
		code, _ := strconv.ParseUint(one[3:len(one)-1], 16, 32)
		legal = legal && utf8.ValidRune(rune(code))
		return string(rune(code))
	})
	return id, legal
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
	case !IsName(c.Claim):
		return errors.New("principal.claim is missing or not printable; write the name of the claim, such as sub")
	}
	return nil
}

// in is the holder of a token with claims that were read strictly, or none.
func (c *PrincipalClaim) in(claims evaluation.Object) Principal {
	if c == nil {
		return Principal{}
	}
	said, _ := claims.Lookup(c.Claim)
	holder := Principal{c.Type, said.Text()}
	if said.Kind() != evaluation.String || len(holder.ID) > maxClaim || holder.check() != nil {
		return Principal{}
	}
	return holder
}
