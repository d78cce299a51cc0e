package arguments

import (
	"cmp"
	"math/big"
	"strconv"
	"strings"
)

// number is a number of JSON, exactly: 0.DIGITS times ten to the power of exponent. Digits neither begin nor end with a zero;
// of zero there are none. What is compared stays as long as its text: 1e-999999999 is not written out.
type number struct {
	negative bool
	digits   string
	exponent int
}

// mostExponent is the greatest power of ten with which numbers are compared, and mostDigits how many digits are divided.
const (
	mostExponent = 1_000_000_000
	mostDigits   = 4096
)

// readNumber reads the literal of a number. It is not ok if nobody could mean it.
func readNumber(text string) (n number, ok bool) {
	text, n.negative = strings.CutPrefix(text, "-")
	mantissa := text
	if at := strings.IndexAny(text, "eE"); at >= 0 {
		var err error
		if n.exponent, err = strconv.Atoi(text[at+1:]); err != nil || n.exponent > mostExponent || n.exponent < -mostExponent {
			return n, false
		}
		mantissa = text[:at]
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	n.digits = whole
	if fraction != "" {
		n.digits = whole + fraction
	}
	significant := strings.TrimLeft(n.digits, "0")
	n.exponent += len(whole) - (len(n.digits) - len(significant))
	if n.digits = strings.TrimRight(significant, "0"); n.digits == "" {
		return number{}, true
	}
	return n, true
}

func (n number) isInteger() bool { return len(n.digits) <= n.exponent || n.digits == "" }

func (n number) sign() int {
	switch {
	case n.digits == "":
		return 0
	case n.negative:
		return -1
	}
	return 1
}

func (n number) compare(m number) int {
	if c := cmp.Compare(n.sign(), m.sign()); c != 0 || n.digits == "" {
		return c
	}
	return n.sign() * cmp.Or(cmp.Compare(n.exponent, m.exponent), strings.Compare(n.digits, m.digits))
}

// isMultiple reports whether n is a multiple of m, which is greater than zero. Powers of ten are never written out that are
// longer than n is.
func (n number) isMultiple(m number) bool {
	if n.digits == "" {
		return true
	}
	power := (n.exponent - len(n.digits)) - (m.exponent - len(m.digits))
	if len(n.digits) > mostDigits || len(m.digits) > mostDigits || power < -len(n.digits) {
		return false
	}
	of, by := new(big.Int), new(big.Int)
	of.SetString(n.digits, 10)
	by.SetString(m.digits, 10)
	ten := big.NewInt(10)
	if power < 0 {
		by.Mul(by, ten.Exp(ten, big.NewInt(int64(-power)), nil))
	} else {
		of.Mul(of, ten.Exp(ten, big.NewInt(int64(power)), by))
	}
	return of.Rem(of, by).Sign() == 0
}
