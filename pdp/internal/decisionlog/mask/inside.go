package mask

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
)

// A string may hold JSON: models send the arguments of a tool in strings, and the JSON may hold strings with JSON again. It
// is masked as if it stood in the open, so that equal values have equal digests, and then written again. A string may only
// look like JSON, because it is cut off, has a name twice, or quotes JSON in prose. Such a string is masked whole if a
// name in it is the name of a secret.

// reading says how to mask a string, besides the secrets that are sought in it.
type reading int

const (
	asText  reading = iota
	asValue         // mask the JSON value in it
	asWhole         // it cannot be read, and a member in it is a secret
)

// read decides how to mask a string at a place. values has the JSON values of strings that were already read.
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
	if secret || len(a) > 0 { // a pattern may address a member
		return evaluation.Value{}, asWhole
	}
	return evaluation.Value{}, asText
}

// quotesSecret reports whether the name of a secret stands in quotes before a colon. It reads each byte once, however
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

// blanks limits the blanks that are read between a name and its colon. After more blanks, a colon is assumed.
const blanks = 64

// unicodeEscapes decodes the \u escapes of JSON, however often they were escaped again. Other escapes hide no letter.
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

// inside reads the JSON value that a string holds, by the rules and limits of a request. A string in the value may hold
// JSON again. Quoting a text twice at least doubles its length, so the work is in proportion to the text.
func inside(text string) (v evaluation.Value, ok bool) {
	if !utf8.ValidString(text) || !jsontext.Value(text).IsValid() { // one value, with nothing after it
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
