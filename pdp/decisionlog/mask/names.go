package mask

import (
	"strings"
	"unicode"
)

// telling are the parts of names that say that a member is a secret. Names are
// compared without case, and without what words are put together with, so that
// api_key, apiKey, API-KEY and "api key" are one.
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

// plain is a letter in its lower case, and -1 for what joins words. The letters that
// Unicode folds to ASCII ones (the Kelvin sign, the long s) are those.
func plain(r rune) rune {
	switch {
	case 'A' <= r && r <= 'Z':
		return r + 'a' - 'A'
	case r == '_' || r == '-' || r == ' ' || r == '.':
		return -1
	case r < unicode.MaxASCII:
		return r
	}
	for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
		if 'a' <= f && f <= 'z' {
			return f
		}
	}
	return r
}
