package capability

import (
	"cmp"
	"maps"
	"math"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
)

// decimal is the exact value of a number: its digits without zeros around them, times a power of ten. Zero has no
// digits.
type decimal struct {
	sign   int // -1, 0 or 1
	digits string
	power  int64
}

// decimalOf fails for what is no number, and for one whose exponent cannot be handled in reasonable time.
func decimalOf(v evaluation.Value) (d decimal, ok bool) {
	if v.Kind() != evaluation.Number {
		return d, false
	}
	canonical, ok := v.AppendCanonical(nil)
	text, exponent, _ := strings.Cut(string(canonical), "e")
	text, negative := strings.CutPrefix(text, "-")
	if d.digits = strings.TrimRight(text, "0"); d.digits == "" {
		return d, ok
	}
	if d.sign = 1; negative {
		d.sign = -1
	}
	d.power, _ = strconv.ParseInt(exponent, 10, 64) // 0 where there is none
	d.power += int64(len(text) - len(d.digits))
	return d, ok
}

// compare is that of the values of a and b, without a step for each zero of an exponent.
func (a decimal) compare(b decimal) int {
	if by := cmp.Compare(a.sign, b.sign); by != 0 || a.sign == 0 {
		return by
	}
	return a.sign * cmp.Or(
		cmp.Compare(int64(len(a.digits))+a.power, int64(len(b.digits))+b.power), // the place of the first digit
		strings.Compare(a.digits, b.digits),                                     // which end with no zero
	)
}

// jcs is the text of a value in the form of RFC 8785, null members included. It fails where a number is another decimal
// value there: that form writes a double, and 2^53+1 has none.
func jcs(v evaluation.Value) ([]byte, bool) {
	b := jsontext.Value(`{"":` + string(text(v)) + `}`)
	if b.Canonicalize() != nil {
		return nil, false
	}
	o, err := evaluation.ParseWithNulls(b, boundless)
	written, _ := o.Lookup("")
	return b[len(`{"":`) : len(b)-1], err == nil && same(v, written)
}

// boundless are limits for what was within others before.
var boundless = evaluation.Limits{Body: math.MaxInt, Depth: math.MaxInt, Values: math.MaxInt}

// same reports whether two values are the same JSON, numbers compared by their exact values.
func same(a, b evaluation.Value) bool {
	if a.Kind() != b.Kind() || a.Len() != b.Len() {
		return false
	}
	switch a.Kind() {
	case evaluation.Number:
		x, ok1 := decimalOf(a)
		y, ok2 := decimalOf(b)
		return ok1 && ok2 && x == y
	case evaluation.Array:
		return maps.EqualFunc(maps.Collect(a.Elements), maps.Collect(b.Elements), same)
	case evaluation.Map: // null members included
		return maps.EqualFunc(maps.Collect(a.Object().All), maps.Collect(b.Object().All), same)
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

// given drops members that are "" or 0: they were not given.
func given(members map[string]any) map[string]any {
	maps.DeleteFunc(members, func(_ string, v any) bool { return v == "" || v == 0 || v == int64(0) })
	return members
}

// canonical is the form of RFC 8785 of what has JSON.
func canonical(v any) []byte {
	b := jsontext.Value(text(v))
	_ = b.Canonicalize() // which fails for what is no JSON
	return b
}

// text is the JSON of what has one. Text that is not valid UTF-8, such as the name of a tool, is mended.
func text(v any) []byte {
	b, err := json.Marshal(v, jsontext.AllowInvalidUTF8(true), json.Deterministic(true))
	if err != nil {
		panic(err)
	}
	return b
}
