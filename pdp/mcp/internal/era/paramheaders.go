package era

import (
	"math"
	"net/http"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/mcp/internal/rpc"
)

// CheckParamHeaders holds the headers of a call against its arguments: each parameter of p that has a value is in its
// header, and no other is. The status of the error is 400.
func CheckParamHeaders(h http.Header, p []HeaderParam, arguments jsontext.Value) *rpc.Error {
	if len(p) == 0 {
		return nil
	}
	all := objectOf(arguments)
	for _, one := range p {
		v := one.value(all)
		if v == nil {
			if len(h[one.header]) > 0 {
				return mismatch("the header " + one.header + " is of a parameter that has no value")
			}
			continue
		}
		said, fault := single(h, one.header)
		if fault != nil {
			return fault
		}
		if !mirrors(said, v) {
			return differs(one.header)
		}
	}
	return nil
}

// ParamHeaders are the headers that mirror the arguments of a call. A value that no header may have has none.
func ParamHeaders(p []HeaderParam, arguments jsontext.Value) http.Header {
	if len(p) == 0 {
		return nil
	}
	h, all := http.Header{}, objectOf(arguments)
	for _, one := range p {
		if text, ok := primitive(one.value(all)); ok {
			h[one.header] = []string{EncodeHeader(text)}
		}
	}
	return h
}

// value is the argument of a parameter, nil if it is absent or null.
func (p HeaderParam) value(arguments rpc.Object) jsontext.Value {
	v := arguments.Get(p.path[0])
	for _, name := range p.path[1:] {
		v = objectOf(v).Get(name)
	}
	if v.Kind() == 'n' {
		return nil
	}
	return v
}

// mirrors reports whether a header has the value of an argument. Integers are compared as numbers.
func mirrors(header string, v jsontext.Value) bool {
	said, ok := decodeHeader(header)
	if !ok {
		return false
	}
	if v.Kind() == '0' {
		n, ok := integer(v)
		other := jsontext.Value(said)
		m, ok2 := int64(0), other.Kind() == '0' && other.IsValid()
		if ok2 {
			m, ok2 = integer(other)
		}
		return ok && ok2 && n == m
	}
	text, ok := primitive(v)
	return ok && text == said
}

// primitive is the text of an argument that a header may have: a string, a boolean, an integer that a double holds exactly.
func primitive(v jsontext.Value) (string, bool) {
	switch v.Kind() {
	case '"':
		b, err := jsontext.AppendUnquote(nil, v)
		return string(b), err == nil
	case 't', 'f':
		return string(v), true
	case '0':
		n, ok := integer(v)
		return strconv.FormatInt(n, 10), ok
	}
	return "", false
}

// integer is a number that is one, however it is written, within the protocol's bounds.
func integer(v jsontext.Value) (int64, bool) {
	const most = 1<<53 - 1
	f, err := strconv.ParseFloat(string(v), 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) > most {
		return 0, false
	}
	return int64(f), true
}
