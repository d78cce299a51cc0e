package capability

import (
	"cmp"
	"math"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
)

// decimal is the exact value of a number: its digits without zeros around them, times a power of ten. Zero has no digits.
type decimal struct {
	negative bool
	digits   string
	power    int64
}

// decimalOf fails for what is no number, and for one whose exponent cannot be handled in reasonable time.
func decimalOf(v evaluation.Value) (decimal, bool) {
	if v.Kind() != evaluation.Number {
		return decimal{}, false
	}
	canonical, ok := v.AppendCanonical(nil)
	text, exponent, _ := strings.Cut(string(canonical), "e")
	var d decimal
	text, d.negative = strings.CutPrefix(text, "-")
	d.power, _ = strconv.ParseInt(exponent, 10, 64) // 0 where there is none
	d.digits = strings.TrimRight(text, "0")
	if d.power += int64(len(text) - len(d.digits)); d.digits == "" {
		d = decimal{}
	}
	return d, ok
}

// compare is that of the values of a and b, without a step for each zero of an exponent.
func (a decimal) compare(b decimal) int {
	sign := func(d decimal) int {
		switch {
		case d.digits == "":
			return 0
		case d.negative:
			return -1
		}
		return 1
	}
	if by := cmp.Compare(sign(a), sign(b)); by != 0 || a.digits == "" {
		return by
	}
	by := cmp.Or(
		cmp.Compare(int64(len(a.digits))+a.power, int64(len(b.digits))+b.power), // the place of the first digit
		strings.Compare(a.digits, b.digits),                                     // which ends with no zero
	)
	return by * sign(a)
}

// jcs is the text of a value in the form of RFC 8785, null members included. It fails where a number is another decimal
// value there: that form writes a double, and 2^53+1 has none.
func jcs(v evaluation.Value) ([]byte, bool) {
	text := jsontext.Value(`{"":` + string(marshaled(v)) + `}`)
	if text.Canonicalize() != nil {
		return nil, false
	}
	o, err := evaluation.ParseWithNulls(text, boundless)
	written, _ := o.Lookup("")
	return text[len(`{"":`) : len(text)-1], err == nil && same(v, written)
}

// boundless are limits for what was within others before.
var boundless = evaluation.Limits{
	Body: math.MaxInt, Depth: math.MaxInt, Elements: math.MaxInt, NestedElements: math.MaxInt, ArrayDepth: math.MaxInt, Values: math.MaxInt,
}

func marshaled(v evaluation.Value) []byte {
	text, _ := v.MarshalJSON() // which cannot fail
	return text
}

// same reports whether two values are the same JSON, numbers compared by their exact values.
func same(a, b evaluation.Value) bool {
	if a.Kind() != b.Kind() {
		return false
	}
	switch a.Kind() {
	case evaluation.Number:
		x, ok1 := decimalOf(a)
		y, ok2 := decimalOf(b)
		return ok1 && ok2 && x == y
	case evaluation.Array:
		var rest []evaluation.Value
		for _, e := range b.Elements {
			rest = append(rest, e)
		}
		if a.Len() != len(rest) {
			return false
		}
		for n, e := range a.Elements {
			if !same(e, rest[n]) {
				return false
			}
		}
		return true
	case evaluation.Map:
		count := 0
		for range b.Object().All {
			count++
		}
		for name, e := range a.Object().All {
			other, there := b.Object().Lookup(name)
			if count--; !there || !same(e, other) {
				return false
			}
		}
		return count == 0
	}
	return a.Text() == b.Text()
}

// HashArguments is the hash of a call's arguments that a proof holds: the SHA-256, in base64url, of their form of RFC
// 8785. The arguments of a call without any are the empty object. Members that are null count, so read them with
// [evaluation.ParseWithNulls]. Two spellings of the same JSON have one hash.
func HashArguments(arguments evaluation.Object) (hash string, refusal *Refusal) {
	text, ok := jcs(arguments.Value())
	if !ok {
		return "", &Refusal{Code: ArgumentUnprovable}
	}
	return digest(text), nil
}
