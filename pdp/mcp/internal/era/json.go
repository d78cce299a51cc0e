package era

import (
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/mcp/internal/rpc"
)

// objectOf is a value that is an object, the empty one if it is none.
func objectOf(v jsontext.Value) rpc.Object {
	o, _ := rpc.ParseObject(v)
	return o
}

func texts(all []string) jsontext.Value {
	values := make([]jsontext.Value, len(all))
	for i, s := range all {
		values[i] = rpc.String(s)
	}
	return rpc.Array(values)
}
