package rpc_test

import (
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/internal/rpc"
)

func TestWithoutInMeta(t *testing.T) {
	for v, want := range map[string]string{
		``:               ``,
		`null`:           `null`,
		`"own/a \u0061"`: `"own/a \u0061"`,
		` { "own/a" : [ 1.0 ], "_meta" : { "x" : 1e2 } } `:                         ` { "own/a" : [ 1.0 ], "_meta" : { "x" : 1e2 } } `,
		`{"_meta":"own/","own/a":{"own/b":1}}`:                                     `{"_meta":"own/","own/a":{"own/b":1}}`,
		`{"_meta":{"own/a":1}}`:                                                    `{}`,
		` {"a":1, "_meta" : {"own/a":1} , "b":1.0 } `:                              ` {"a":1 , "b":1.0 } `,
		`{"_meta":{"a":"\u00e9","own/a":{"x":[1,{}]},"b":[ 1.0 ]},"c":"own/a"}`:    `{"_meta":{"a":"\u00e9","b":[ 1.0 ]},"c":"own/a"}`,
		`[{"_meta":{"own/a":1,"own/b":2,"c":3}},{"x":[[{"_meta":{"own/a":[]}}]]}]`: `[{"_meta":{"c":3}},{"x":[[{}]]}]`,
		`{"_meta":{"\u006fwn/a":1,"own\/b":1},"\u005fmeta":1}`:                     `{"\u005fmeta":1}`,
		`{"\u005fmeta":{"\u006fwn\u002fa":1}}`:                                     `{}`,
		`{"_META":{"own/a":1,"b":2}}`:                                              `{"_META":{"b":2}}`,
		`{"_meta":[{"own/a":1}]}`:                                                  `{"_meta":[{"own/a":1}]}`,
		`{"_meta":{"a":{"own/a":1,"_meta":{"own/a":1}}}}`:                          `{"_meta":{"a":{"own/a":1}}}`,
		`{"_meta":{},"x":{"_meta":{"own/a":1}}}`:                                   `{"_meta":{},"x":{}}`,
	} {
		if got := rpc.WithoutInMeta(jsontext.Value(v), "own/"); string(got) != want {
			t.Errorf("%s\n  is %s\nnot  %s", v, got, want)
		}
	}
}
