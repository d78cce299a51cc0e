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
	sign, digits, power, ok := decimalOf(v.text)
	if digits == "" {
		return 0, true
	}
	zeros := power + int64(places)
	if !ok || zeros < 0 || int64(len(digits))+zeros > 19 {
		return 0, false
	}
	n, err := strconv.ParseInt(sign+digits+strings.Repeat("0", int(zeros)), 10, 64)
	return n, err == nil
}

// decimalOf reads a number as its sign ("-" or ""), its digits without zeros around them, and the
// power of ten that the digits are multiplied with. The digits of zero are "". It reports false if
// the exponent is beyond 15 digits: power could overflow otherwise. Power is an int64 because an
// int has 32 bits on some platforms, where 1e4294967296 would become 1.
func decimalOf(text string) (sign, digits string, power int64, ok bool) {
	const greatest = 999_999_999_999_999
	text, negative := strings.CutPrefix(text, "-")
	if negative {
		sign = "-"
	}
	mantissa, ok := text, true
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		exponent, err := strconv.ParseInt(text[i+1:], 10, 64)
		mantissa, power, ok = text[:i], exponent, err == nil && -greatest <= exponent && exponent <= greatest
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	all := strings.TrimLeft(whole+fraction, "0")
	digits = strings.TrimRight(all, "0")
	return sign, digits, power + int64(len(all)-len(digits)-len(fraction)), ok
}
