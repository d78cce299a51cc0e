package mask

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
)

// A string may hold JSON: models send the arguments of a tool so, and that JSON may hold strings with JSON again. It is
// masked as if it stood in the open, so that the same value has the same digest, and written anew. A string may only
// look like JSON, because it is cut off, has a name twice, or quotes JSON in prose. Such a string is masked whole if a
// name in it is that of a secret.

// reading is how a string is masked, besides for the secrets in it.
type reading int

const (
	asText  reading = iota
	asValue         // it is a JSON value, and is masked like one
	asWhole         // it cannot be read, and a member in it is a secret
)

// read decides how to mask a string at this place. Values are those of strings that were read before.
func (a at) read(text string, values map[string]evaluation.Value) (evaluation.Value, reading) {
	if v, ok := values[text]; ok {
		return v, asValue
	}
	first := strings.TrimLeft(text[:min(len(text), blanks)], " \t\r\n")
	like := first != "" && strings.IndexByte(`{["`, first[0]) >= 0
	secret := quotesSecret(text, '"') || quotesSecret(text, '\'')
	if !like && !secret {
		return evaluation.Value{}, asText
	}
	if v, ok := inside(text); ok {
		return v, asValue
	}
	if secret || len(a) > 0 { // a pattern addresses a member of it
		return evaluation.Value{}, asWhole
	}
	return evaluation.Value{}, asText
}

// quotesSecret reports if the name of a secret stands in quotes before a colon. It looks at each byte once, however
// quotes are nested.
func quotesSecret(text string, quote byte) bool {
	begin := strings.IndexByte(text, quote) + 1
	if begin == 0 {
		return false
	}
	for {
		n := strings.IndexByte(text[begin:], quote)
		if n < 0 {
			return false
		}
		end := begin + n
		window := text[end+1 : min(end+1+blanks, len(text))]
		after := strings.TrimLeft(window, " \t\r\n")
		colon := after == "" && len(window) == blanks || strings.HasPrefix(after, ":")
		if colon && evaluation.SecretName(unicodeEscapes(text[begin:end])) {
			return true
		}
		begin = end + 1
	}
}

// blanks is how many blanks are read between a name and its colon. If there are more, a colon is assumed.
const blanks = 64

// unicodeEscapes undoes the \u escapes of JSON, however often they were escaped again. Other escapes hide no letter.
func unicodeEscapes(name string) string {
	if !strings.Contains(name, `\u`) {
		return name
	}
	first, rest, _ := strings.Cut(name, `\u`)
	var b strings.Builder
	b.WriteString(first)
	for part := range strings.SplitSeq(rest, `\u`) {
		if len(part) >= 4 {
			if r, err := strconv.ParseUint(part[:4], 16, 16); err == nil {
				b.WriteRune(rune(r))
				part = part[4:]
			}
		}
		b.WriteString(part)
	}
	return b.String()
}

// inside is the JSON value that a string holds, by the rules and limits of a request. If the value is a string, it may
// hold JSON again. Each quoting twice makes a text at least double as long, so the work is in proportion to the text.
func inside(text string) (v evaluation.Value, ok bool) {
	if !utf8.ValidString(text) || !jsontext.Value(text).IsValid() { // it is one value, and nothing after it
		return v, false
	}
	limits := evaluation.DefaultLimits()
	limits.Body = len(text) + 16
	o, err := evaluation.ParseObject([]byte(`{"x":`+text+`}`), limits)
	if err != nil {
		return v, false
	}
	return o.Get("x")
}
