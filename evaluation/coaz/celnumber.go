package coaz

import (
	"math"
	"reflect"
	"strconv"
	"strings"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"

	"policy-service/evaluation"
)

// celNumber is the int or double that a number is. It is an int if it is integral, however it is written: 1, 1.0 and
// 1e0 are one number. A number that neither can hold exactly stays what it is, and can only be copied.
func celNumber(v evaluation.Value) ref.Val {
	if n, ok := v.Scaled(0); ok {
		return types.Int(n)
	}
	if f, err := strconv.ParseFloat(v.Text(), 64); err == nil && f != math.Trunc(f) {
		digits, ok := v.AppendCanonical(nil)
		if ok && string(digits) == canonicalDouble(f) {
			return types.Double(f)
		}
	}
	return &number{v}
}

// canonicalDouble is the shortest text that is read as f again, in the form of [evaluation.Value.AppendCanonical]. It is
// for doubles that are not integral.
func canonicalDouble(f float64) string {
	mantissa, exponent, _ := strings.Cut(strconv.FormatFloat(f, 'e', -1, 64), "e")
	whole, fraction, _ := strings.Cut(mantissa, ".")
	power, _ := strconv.Atoi(exponent)
	return whole + fraction + "e" + strconv.Itoa(power-len(fraction))
}

// number is a number that CEL cannot hold: beyond int64, or of more digits than a double has.
type number struct{ value evaluation.Value }

const inexact = "a number that CEL cannot hold exactly is used for more than a copy"

var numberType = types.NewOpaqueType("json.number")

func (n *number) ConvertToNative(reflect.Type) (any, error) {
	return nil, types.NewErrFromString(inexact).(*types.Err)
}
func (n *number) ConvertToType(ref.Type) ref.Val {
	return types.NewErrFromString(inexact)
}
func (n *number) Equal(ref.Val) ref.Val { return types.NewErrFromString(inexact) }
func (n *number) Type() ref.Type        { return numberType }
func (n *number) Value() any            { return n.value }

// inexactIn reports whether there is such a number in v, at any depth.
func inexactIn(v evaluation.Value) bool {
	switch v.Kind() {
	case evaluation.Number:
		_, is := celNumber(v).(*number)
		return is
	case evaluation.Array:
		for _, e := range v.Elements {
			if inexactIn(e) {
				return true
			}
		}
	case evaluation.Map:
		for _, m := range v.Object().All {
			if inexactIn(m) {
				return true
			}
		}
	}
	return false
}
