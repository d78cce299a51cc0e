package evaluation

import (
	"crypto/sha256"
	"encoding/base64"
	"slices"
	"strings"
)

// personMember says for which person a question is asked, or for which persons, whatever the
// entities of the question are called. Two services may name one person differently; the issuer's
// own name is one.
const personMember = "person"

// PersonOf is the value of context.person for the holder of a token: the SHA-256 of its issuer, a
// NUL, and its subject, in base64url without padding.
func PersonOf(issuer, subject string) string {
	sum := sha256.Sum256([]byte(issuer + "\x00" + subject))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// HolderOf are the issuer and the subject of the token that a caller has shown, by the name of the caller, jwt:ISSUER#SUBJECT.
func HolderOf(caller string) (issuer, subject string, is bool) {
	holder, isToken := strings.CutPrefix(caller, "jwt:")
	issuer, subject, both := strings.Cut(holder, "#") // which no issuer has
	return issuer, subject, isToken && both
}

// PersonOfCaller is the person whose token a caller has shown, "" if it has shown none.
func PersonOfCaller(caller string) string {
	issuer, subject, is := HolderOf(caller)
	if !is {
		return ""
	}
	return PersonOf(issuer, subject)
}

// isPerson reports whether text can be a result of [PersonOf]. Of the characters that stand
// for the same bytes one only is legal: two texts for one person would be two persons.
func isPerson(text string) bool {
	sum, err := base64.RawURLEncoding.Strict().DecodeString(text)
	return err == nil && len(sum) == sha256.Size && base64.RawURLEncoding.EncodeToString(sum) == text
}

// MostPersons is for how many a question is asked at most: who asks, and whose request it fulfils.
const MostPersons = 2

// Person is the person for whom the request is asked, "" if it names none. Several are in one text,
// apart from each other by a space.
func (r *Request) Person() string {
	said, _ := r.Context.Get(personMember)
	return strings.Join(personsOf(said), " ")
}

// SaysPerson reports whether a person is one of those that [Request.Person] has named.
func SaysPerson(persons, person string) bool {
	return person != "" && slices.Contains(strings.Fields(persons), person)
}

func personsOf(v Value) (all []string) {
	if v.Kind() == String {
		return []string{v.Text()}
	}
	for _, e := range v.Elements {
		all = append(all, e.Text())
	}
	return all
}

// arePersons reports whether a value is a person, or an array of two.
func arePersons(v Value) bool {
	all := personsOf(v)
	isArray := v.Kind() == Array && len(all) == MostPersons && all[0] != all[1]
	return (v.Kind() == String || isArray) && !slices.ContainsFunc(all, func(one string) bool { return !isPerson(one) })
}

// BindsAlways reports whether an approval is bound to a member of the context whatever its terms
// say. Who may decide depends on such a member.
func BindsAlways(member string) bool { return NamesActors(member) || member == personMember }
