package pep

import (
	"errors"
	"fmt"
	"math/big"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// object is a JSON object; the other values are []any, string, bool, nil and number.
type object = map[string]any

// number is a number as it is spelt: a float would make one of 9007199254740992 and 9007199254740993.
type number string

// asSpelt keeps numbers as they are spelt.
var asSpelt = json.WithUnmarshalers(json.UnmarshalFromFunc(func(in *jsontext.Decoder, v *any) error {
	if in.PeekKind() != '0' {
		return errors.ErrUnsupported
	}
	text, err := in.ReadValue()
	*v = number(text)
	return err
}))

// parse reads one JSON value and nothing after it. A member twice, or bytes that are not UTF-8, are no JSON here: two
// readers of one text must not see two questions.
func parse(text []byte) (v any, err error) {
	err = json.Unmarshal(text, &v, asSpelt)
	return v, err
}

// parseObject reads one JSON object.
func parseObject(text []byte) (object, error) {
	v, err := parse(text)
	if err != nil {
		return nil, err
	}
	o, ok := v.(object)
	if !ok {
		return nil, errors.New("it is no JSON object")
	}
	return o, nil
}

// equal compares values: members in any order, numbers by their value and not by their spelling.
func equal(a, b any) bool {
	switch a := a.(type) {
	case object:
		b, ok := b.(object)
		if !ok || len(a) != len(b) {
			return false
		}
		for name, inner := range a {
			if other, there := b[name]; !there || !equal(inner, other) {
				return false
			}
		}
		return true
	case []any:
		b, ok := b.([]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for n := range a {
			if !equal(a[n], b[n]) {
				return false
			}
		}
		return true
	case number:
		b, ok := b.(number)
		return ok && (a == b || a.equal(b))
	}
	return a == b
}

func (n number) equal(other number) bool {
	x, y := n.exact(), other.exact()
	return x != nil && y != nil && x.Cmp(y) == 0
}

// MarshalJSON spells it as it was spelt.
func (n number) MarshalJSON() ([]byte, error) { return []byte(n), nil }

// show is a value for people.
func show(v any) string {
	text, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		return fmt.Sprint(v)
	}
	return excerpt(string(text))
}

// exact is nil for a number with an exponent that is too large to be written out.
func (n number) exact() *big.Rat {
	if at := strings.IndexAny(string(n), "eE"); at >= 0 && len(n)-at > 5 || len(n) > 1000 {
		return nil
	}
	r, ok := new(big.Rat).SetString(string(n))
	if !ok {
		return nil
	}
	return r
}

// member is a member of an object, nil if there is none or v is no object.
func member(v any, path ...string) any {
	for _, name := range path {
		o, ok := v.(object)
		if !ok {
			return nil
		}
		v = o[name]
	}
	return v
}
