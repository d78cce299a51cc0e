package evaluation

import (
	"crypto/sha256"
	"encoding/base64"
)

// personMember says for which person a question is asked, whatever the entities of the question
// are called. Two services may name one person differently; the issuer's own name is one.
const personMember = "person"

// PersonOf is the value of context.person for the holder of a token: the SHA-256 of its issuer, a
// NUL, and its subject, in base64url without padding.
func PersonOf(issuer, subject string) string {
	sum := sha256.Sum256([]byte(issuer + "\x00" + subject))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// isPerson reports whether text is what [PersonOf] could have made. Of the characters that stand
// for the same bytes one only is legal: two texts for one person would be two persons.
func isPerson(text string) bool {
	sum, err := base64.RawURLEncoding.Strict().DecodeString(text)
	return err == nil && len(sum) == sha256.Size && base64.RawURLEncoding.EncodeToString(sum) == text
}

// Person is the person for whom the request is asked, "" if it names none.
func (r *Request) Person() string {
	person, _ := r.Context.Get(personMember)
	return person.Text()
}

// BindsAlways reports whether an approval is bound to a member of the context whatever its terms
// say. Who may decide depends on such a member.
func BindsAlways(member string) bool { return NamesActors(member) || member == personMember }
