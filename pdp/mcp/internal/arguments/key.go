package arguments

import (
	"strconv"

	"policy-service/evaluation"
)

// keyOf is a text that two values share if, and only if, they are equal to JSON Schema: 1, 1.0 and 1e0 are, 1 and "1" are not.
func keyOf(v evaluation.Value) string { return string(appendKey(nil, v)) }

func appendKey(b []byte, v evaluation.Value) []byte {
	switch v.Kind() {
	case evaluation.Null:
		return append(b, 'n')
	case evaluation.Bool:
		return append(b, v.Text()[0])
	case evaluation.String:
		return appendText(append(b, '"'), v.Text())
	case evaluation.Number:
		n, ok := readNumber(v.Text())
		if !ok {
			return appendText(append(b, '?'), v.Text())
		}
		b = append(strconv.AppendInt(append(b, '#'), int64(n.sign()), 10), n.digits...)
		return strconv.AppendInt(append(b, 'e'), int64(n.exponent), 10)
	case evaluation.Array:
		b = append(b, '[')
		for _, e := range v.Elements {
			b = appendKey(append(b, ','), e)
		}
		return append(b, ']')
	}
	b = append(b, '{')
	for name, m := range v.Object().All {
		b = appendKey(appendText(append(b, ','), name), m)
	}
	return append(b, '}')
}

func appendText(b []byte, s string) []byte {
	return append(append(strconv.AppendInt(b, int64(len(s)), 10), ':'), s...)
}
