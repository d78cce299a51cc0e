package evaluation

import (
	"slices"
	"strings"
	"unicode"
)

// secretWords are the words that mark a member as a secret if its name contains one. Names are compared without case,
// and by their letters and digits alone, so that api_key, apiKey, API-KEY, api/key and "api key" are the same, whatever
// blank or invisible character stands between the words.
var secretWords = []string{
	"password", "passwd", "secret", "token", "apikey", "authorization", "cookie",
	"credential", "privatekey", "capability", "proof", "signature",
}

// SecretName reports if the value of a member is a secret by the name of the member. Records have a mask in its place,
// and texts for people do not repeat it.
func SecretName(name string) bool {
	if len(name) < len("token") { // no word is shorter
		return false
	}
	name = strings.Map(bareRune, name)
	return slices.ContainsFunc(secretWords, func(word string) bool { return strings.Contains(name, word) })
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
