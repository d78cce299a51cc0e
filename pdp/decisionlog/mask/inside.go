package mask

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
)

// A string may hold JSON: models send the arguments of a tool so, and what it holds may
// hold JSON again. It is masked like what stands in the open, so that the same value has
// the same digest, and written anew. What only looks like JSON, because it is cut off,
// has a name twice or stands in prose, is masked whole where a name in it tells.

// reading is how a string is masked, besides for the secrets that stand in it.
type reading int

const (
	asText  reading = iota
	asValue         // like the JSON value that it is
	asWhole         // it cannot be read, and a member in it is one to mask
)

// read says how to mask a string that stands where a walk has come to.
func (a at) read(text string) (evaluation.Value, reading) {
	first := strings.TrimLeft(text[:min(len(text), blanks)], " \t\r\n")
	like := first != "" && strings.IndexByte(`{["`, first[0]) >= 0
	telling := quotes(text, '"') || quotes(text, '\'')
	if !like && !telling {
		return evaluation.Value{}, asText
	}
	if v, ok := inside(text); ok {
		return v, asValue
	}
	if telling || len(a) > 0 { // a pattern goes on below it
		return evaluation.Value{}, asWhole
	}
	return evaluation.Value{}, asText
}

// quotes reports whether a telling name stands in quotes before a colon. Each byte is
// looked at once, whatever is quoted in what.
func quotes(text string, quote byte) bool {
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
		if (after == "" && len(window) == blanks || strings.HasPrefix(after, ":")) && tells(unicodeEscapes(text[begin:end])) {
			return true
		}
		begin = end + 1
	}
}

// blanks is how many are looked at between a name and its colon: what has more of them
// counts as having one.
const blanks = 64

// unicodeEscapes undoes those of JSON, however often they were escaped again. Other
// escapes hide no letter.
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

// inside is the JSON value that a string is, by the rules and limits of a request. Where
// it is itself a string it may hold one again: each has at most half the length of what
// it is quoted in twice, so the work is of the size of the text.
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
