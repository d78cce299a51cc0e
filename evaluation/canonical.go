package evaluation

import (
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
)

// AppendCanonical appends v as the one text that all ways of writing the same value
// have: members in the order of RFC 8785, strings as it has them, elements in
// their order. Numbers are exact, unlike there: an integral one is a plain integer,
// whatever its size, another is its digits and a power of ten. An integer beyond 2^53
// that is written with a point or an exponent is another value than without: a double
// holds another number. It fails for a number whose value cannot be found in reasonable
// time.
func (v Value) AppendCanonical(b []byte) ([]byte, bool) {
	w := valueWriter{canonical: true}
	b = w.append(b, v)
	return b, !w.failed
}

// inUTF16 puts members in the order of their names in UTF-16, which differs from
// that in UTF-8 beyond U+FFFF.
func inUTF16(members []Member) []Member {
	plain := func(m Member) bool { return strings.IndexFunc(m.Name, func(r rune) bool { return r > 0xD7FF }) < 0 }
	if !slices.ContainsFunc(members, func(m Member) bool { return !plain(m) }) {
		return members
	}
	sorted := slices.Clone(members)
	slices.SortFunc(sorted, func(a, b Member) int {
		return slices.Compare(utf16.Encode([]rune(a.Name)), utf16.Encode([]rune(b.Name)))
	})
	return sorted
}

// beyondDoubles reports whether an integral number, digits with as many zeros behind them, is greater than 2^53: up to there a
// double holds every one.
func beyondDoubles(digits string, zeros int64) bool {
	const last = "9007199254740992"
	if size := int64(len(digits)) + zeros; size != int64(len(last)) {
		return size > int64(len(last))
	}
	return digits+strings.Repeat("0", int(zeros)) > last
}

// mostZeros is how many zeros an integral number is written out with.
const mostZeros = 1000

// appendNumber works on the text: no number is rounded, and 1e1000000000 costs no
// more than its letters.
func appendNumber(b []byte, text string) ([]byte, bool) {
	sign, digits, power, ok := decimalOf(text)
	if digits == "" {
		return append(b, '0'), ok
	}
	b = append(append(b, sign...), digits...)
	if 0 <= power && power <= mostZeros && !(strings.ContainsAny(text, ".eE") && beyondDoubles(digits, power)) {
		return append(b, strings.Repeat("0", int(power))...), ok
	}
	return strconv.AppendInt(append(b, 'e'), power, 10), ok
}
