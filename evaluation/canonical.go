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
// whatever its size, another is its digits and a power of ten. It fails for a number
// of which nobody could say in reasonable time what it is.
func (v Value) AppendCanonical(b []byte) ([]byte, bool) {
	ok := true
	switch v.kind {
	case Number:
		return appendNumber(b, v.text)
	case Array:
		b = append(b, '[')
		for i, e := range v.elems {
			if i > 0 {
				b = append(b, ',')
			}
			if b, ok = e.Value.AppendCanonical(b); !ok {
				return b, false
			}
		}
		return append(b, ']'), true
	case Map:
		b = append(b, '{')
		for i, m := range inUTF16(v.elems) {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(appendString(b, m.Name), ':')
			if b, ok = m.Value.AppendCanonical(b); !ok {
				return b, false
			}
		}
		return append(b, '}'), true
	}
	return v.append(b), true
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

const (
	// mostZeros is how many zeros an integral number is written out with.
	mostZeros = 1000
	// longestExponent is how many digits of an exponent are read.
	longestExponent = 15
)

// appendNumber works on the text: no number is rounded, and 1e1000000000 costs no
// more than its letters.
func appendNumber(b []byte, text string) ([]byte, bool) {
	text, negative := strings.CutPrefix(text, "-")
	mantissa, power := text, 0
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		mantissa = text[:i]
		sign, digits := "", strings.TrimPrefix(text[i+1:], "+")
		if strings.HasPrefix(digits, "-") {
			sign, digits = "-", digits[1:]
		}
		if digits = strings.TrimLeft(digits, "0"); len(digits) > longestExponent {
			return b, false
		}
		power, _ = strconv.Atoi(sign + digits) // of nothing it is 0
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := strings.TrimLeft(whole+fraction, "0")
	significant := strings.TrimRight(digits, "0")
	if significant == "" {
		return append(b, '0'), true
	}
	power += len(digits) - len(significant) - len(fraction)
	if negative {
		b = append(b, '-')
	}
	b = append(b, significant...)
	switch {
	case power == 0:
	case 0 < power && power <= mostZeros:
		b = append(b, strings.Repeat("0", power)...)
	default:
		b = strconv.AppendInt(append(b, 'e'), int64(power), 10)
	}
	return b, true
}
