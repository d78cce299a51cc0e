package evaluation

import (
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// Hidden is a place in a request where the value that was sent is not known any more, because the
// request was masked before it went on record.
type Hidden struct {
	// At is the place, a JSON Pointer into the request in the AuthZEN shape. Everything
	// below it is hidden, too.
	At string `json:"at"`
	// Type is the type of the value that was sent: string, number, bool, object or array.
	Type string `json:"type"`
	// Part is set if only a part of a string is hidden, or the name of a member of an object.
	Part bool `json:"part,omitzero"`
	// Removed is set if the request has no value at this place any more.
	Removed bool `json:"removed,omitzero"`
	// Fit says whether the policies could be asked with the value. It is no part of the record's
	// member masked: other members of the record say it.
	Fit Fit `json:"-"`
}

// MaskPrefix is what a value that is masked begins with, where it is on record.
const MaskPrefix = "masked:"

// hiddenTypes are the names that [Hidden] has for the kinds of values.
var hiddenTypes = [...]string{Bool: "bool", Number: "number", String: "string", Array: "array", Map: "object"}

// TypeName is the name that [Hidden] has for a kind. Null has none.
func (k Kind) TypeName() string { return hiddenTypes[k] }

// Some is some value of the type that was sent. It reports false if there is no such type.
func (h Hidden) Some() (Value, bool) {
	kind := Kind(max(0, slices.Index(hiddenTypes[:], h.Type)))
	return Value{kind: kind, text: map[Kind]string{Number: "0", Bool: "true"}[kind]}, kind != Null
}

// Fit says whether a value that is hidden could be put to the policies. A value cannot be put
// to them if the schema declares another type for it, or if no schema types it and Cedar has no
// such value.
type Fit uint8

// What can be known of a hidden value.
const (
	FitUnknown Fit = iota
	Fits
	Misfits
)

// Tokens are the names of a JSON Pointer. They are nil if it is none.
func Tokens(pointer string) []string {
	if !strings.HasPrefix(pointer, "/") {
		return nil
	}
	tokens := strings.Split(pointer[1:], "/")
	for n := range tokens {
		tokens[n] = pointerUnescaper.Replace(tokens[n])
	}
	return tokens
}

var pointerUnescaper = strings.NewReplacer("~1", "/", "~0", "~")

// escaped reports whether each ~ in a JSON Pointer is followed by 0 or 1.
func escaped(pointer string) bool {
	return !strings.Contains(strings.NewReplacer("~0", "", "~1", "").Replace(pointer), "~")
}

// Put returns the value with another one in it: where the names of a JSON Pointer lead. An object
// on the way may be missing. It reports false if there can be no value there.
func (v Value) Put(tokens []string, with Value) (Value, bool) {
	if len(tokens) == 0 {
		return with, true
	}
	switch v.kind {
	case Null, Map:
		member, _ := v.Object().Get(tokens[0])
		member, ok := member.Put(tokens[1:], with)
		return v.Object().With(tokens[0], member).Value(), ok
	case Array:
		n, err := strconv.Atoi(tokens[0])
		if err != nil || n < 0 || n >= len(v.elems) {
			return v, false
		}
		element, ok := v.elems[n].Value.Put(tokens[1:], with)
		v.elems = slices.Clone(v.elems)
		v.elems[n].Value = element
		return v, ok
	}
	return v, false
}

// secretWords are the words that mark a member as a secret if its name contains one. Names are compared without case,
// and by their letters and digits alone, so that api_key, apiKey, API-KEY, api/key and "api key" are the same, whatever
// blank or invisible character stands between the words.
var secretWords = []string{
	"password", "passwd", "secret", "token", "apikey", "authorization", "cookie",
	"credential", "privatekey", "capability", "proof", "signature",
}

// secretBegins has the secretWords by their first bytes: of most names few bytes begin one, and so each name is read once.
var secretBegins = func() (by [256][]string) {
	for _, word := range secretWords {
		by[word[0]] = append(by[word[0]], word)
	}
	return by
}()

// SecretName reports if the value of a member is a secret by the name of the member. Records have a mask in its place,
// and texts for people do not repeat it.
func SecretName(name string) bool {
	if len(name) < len("token") { // no word is shorter
		return false
	}
	name = strings.Map(bareRune, name)
	for n := range len(name) {
		for _, word := range secretBegins[name[n]] {
			if strings.HasPrefix(name[n:], word) {
				return true
			}
		}
	}
	return false
}

// bareRune is a letter in lower case, or a digit, and -1 for every other character. A letter that Unicode folds to an
// ASCII letter (the Kelvin sign, the long s) becomes that letter, and so does a fullwidth letter.
func bareRune(r rune) rune {
	switch {
	case 'A' <= r && r <= 'Z':
		return r + 'a' - 'A'
	case 'a' <= r && r <= 'z':
		return r
	case 'Ａ' <= r && r <= 'Ｚ':
		return r - 'Ａ' + 'a'
	case 'ａ' <= r && r <= 'ｚ':
		return r - 'ａ' + 'a'
	case !unicode.IsLetter(r) && !unicode.IsDigit(r):
		return -1
	}
	for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
		if 'a' <= f && f <= 'z' {
			return f
		}
	}
	return r
}
