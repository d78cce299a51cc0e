package mask

import (
	"strconv"
	"strings"

	"policy-service/evaluation"
)

// appendForm appends a form of a value that equal values share, and no others. Members stand in the
// order of their names, as [evaluation.Object] has them; 1, 1.0 and 1e0 are one number; and the length before a text
// keeps the text from posing as the form around it.
func appendForm(b []byte, v evaluation.Value) []byte {
	switch v.Kind() {
	case evaluation.Null:
		return append(b, 'n')
	case evaluation.Bool:
		return append(b, v.Text()...)
	case evaluation.Number:
		return append(append(b, '#'), number(v)...)
	case evaluation.String:
		return appendText(b, v.Text())
	case evaluation.Array:
		b = append(b, '[')
		for _, e := range v.Elements {
			b = append(appendForm(b, e), ',')
		}
		return append(b, ']')
	}
	b = append(b, '{')
	for name, member := range v.Object().All {
		b = append(appendForm(appendText(b, name), member), ',')
	}
	return append(b, '}')
}

func appendText(b []byte, text string) []byte {
	b = strconv.AppendInt(append(b, '"'), int64(len(text)), 10)
	return append(append(b, ':'), text...)
}

// number returns the form of a number: its digits if it is an integer that Cedar can hold, or else its significant digits
// and their exponent.
func number(v evaluation.Value) string {
	if n, whole := v.Scaled(0); whole {
		return strconv.FormatInt(n, 10)
	}
	text, negative := strings.CutPrefix(v.Text(), "-")
	mantissa, exponent := text, "0"
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		mantissa, exponent = text[:i], text[i+1:]
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := strings.TrimLeft(whole+fraction, "0")
	significant := strings.TrimRight(digits, "0")
	e, err := strconv.ParseInt(exponent, 10, 32)
	if err != nil { // an exponent this large has no second form
		return v.Text()
	}
	form := significant + "e" + strconv.FormatInt(e-int64(len(fraction))+int64(len(digits)-len(significant)), 10)
	if negative {
		form = "-" + form
	}
	return form
}
