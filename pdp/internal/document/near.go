package document

import (
	"strconv"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"
)

// Mend is a replacement that mends a problem. Word stands at the place of the problem, as the file writes it, or behind a
// quote there; Meant is probably meant in its place. Both are "" if there is none.
type Mend struct{ Word, Meant string }

// Near is the name that is probably meant by one that is unknown; "" if none is near.
type Near string

// String is the end of a message.
func (n Near) String() string {
	if n == "" {
		return ""
	}
	return "; did you mean " + strconv.Quote(string(n)) + "?"
}

// For is the replacement of a word. There is none for a name that would have to be escaped somewhere.
func (n Near) For(word string) Mend { return n.In("", word, "") }

// In is the replacement of a word between two texts that stay.
func (n Near) In(before, word, after string) (m Mend) {
	strange := func(c rune) bool {
		return !unicode.IsLetter(c) && !unicode.IsDigit(c) && !strings.ContainsRune("_-.:/@", c)
	}
	if n == "" || word == "" || strings.ContainsFunc(string(n), strange) || strings.HasSuffix(string(n), ":") {
		return m
	}
	return Mend{before + word + after, before + string(n) + after}
}

// At is the replacement of a scalar of YAML. There is none for a name that would be no text there.
func (n Near) At(at *yaml.Node) (m Mend) {
	instead := *at
	if instead.Value = string(n); instead.ShortTag() != "!!str" || strings.IndexFunc(string(n), unicode.IsLetter) != 0 {
		return m
	}
	return n.For(at.Value)
}
