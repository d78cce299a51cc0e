package evaluation

import (
	"strconv"
	"strings"
)

// Scaled returns a Number times 10^places as an integer, where that is exact
// and fits int64: Scaled(0) is the integral value of 1, 1.0 and 1e0 alike,
// Scaled(4) the value of a decimal. It works on the text, so that no number is
// rounded and no exponent, however large, costs more than its digits.
func (v Value) Scaled(places int) (int64, bool) {
	if v.kind != Number {
		return 0, false
	}
	text, negative := strings.CutPrefix(v.text, "-")
	mantissa, exp := text, 0
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		mantissa = text[:i]
		exp = exponent(text[i+1:])
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := strings.TrimLeft(whole+fraction, "0")
	if digits == "" {
		return 0, true
	}
	significant := strings.TrimRight(digits, "0")
	zeros := exp + places - len(fraction) + len(digits) - len(significant)
	if zeros < 0 || len(significant)+zeros > 19 {
		return 0, false
	}
	digits = significant + strings.Repeat("0", zeros)
	if negative {
		digits = "-" + digits
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	return n, err == nil
}

// exponent reads what follows the e, saturated at a size that no body's digits
// can bring back and no sum here can overflow.
func exponent(s string) int {
	const most = 1 << 40
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil && strings.HasPrefix(s, "-") {
		return -most
	} else if err != nil {
		return most
	}
	return int(min(max(n, -most), most))
}
