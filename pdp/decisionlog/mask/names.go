package mask

import (
	"strings"
	"unicode"
)

// telling are the parts of names that say that a member is a secret. Names are
// compared without case, and by their letters and digits alone, so that api_key, apiKey,
// API-KEY, api/key and "api key" are one, whatever blank or invisible character it is.
var telling = []string{
	"password", "passwd", "secret", "token", "apikey", "authorization", "cookie",
	"credential", "privatekey", "capability", "proof", "signature",
}

// tells reports whether a member's name says that its value is a secret.
func tells(name string) bool {
	name = strings.Map(plain, name)
	for _, part := range telling {
		if strings.Contains(name, part) {
			return true
		}
	}
	return false
}

// plain is a letter in its lower case or a digit, and -1 for all that can stand between
// them. The letters that Unicode folds to ASCII ones (the Kelvin sign, the long s) are
// those, and so are the wide ones.
func plain(r rune) rune {
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
