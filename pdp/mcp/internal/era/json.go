package era

import (
	"bytes"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/mcp/internal/rpc"
)

// objectOf is a value that is an object, the empty one if it is none.
func objectOf(v jsontext.Value) rpc.Object {
	o, _ := rpc.ParseObject(v)
	return o
}

// elements are those of an array, none of what is no array.
func elements(v jsontext.Value) (all []jsontext.Value) {
	d := jsontext.NewDecoder(bytes.NewBuffer(v)) // which reads v where it stands
	if d.PeekKind() != '[' {
		return nil
	}
	_, _ = d.ReadToken()
	for {
		if k := d.PeekKind(); k == ']' || k == 0 {
			return all
		}
		v, err := d.ReadValue()
		if err != nil {
			return nil
		}
		all = append(all, v)
	}
}

func array(values []jsontext.Value) jsontext.Value {
	b := jsontext.Value{'['}
	for i, v := range values {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, v...)
	}
	return append(b, ']')
}

func texts(all []string) jsontext.Value {
	values := make([]jsontext.Value, len(all))
	for i, s := range all {
		values[i] = rpc.String(s)
	}
	return array(values)
}
