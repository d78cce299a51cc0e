package capability_test

import (
	"crypto/sha256"
	"encoding/base64"
	"testing"

	"policy-service/evaluation"
	"policy-service/evaluation/capability"
)

// hashes are arguments, and their form of RFC 8785 written by hand; "" where they have none. They are in the vectors.
var hashes = [][2]string{
	{`{}`, `{}`},
	{` { } `, `{}`},
	{`{"b":1,"a":2}`, `{"a":2,"b":1}`},
	{`{"a":null}`, `{"a":null}`},
	{`{"a":{"b":null},"c":[null,{"d":null}]}`, `{"a":{"b":null},"c":[null,{"d":null}]}`},
	{`{"n":1.0}`, `{"n":1}`},
	{`{"n":[1e2,-0,0.1,1e-7,1E21,123456789]}`, `{"n":[100,0,0.1,1e-7,1e+21,123456789]}`},
	{`{"n":9007199254740992}`, `{"n":9007199254740992}`},
	{`{"n":100000000000000000000}`, `{"n":100000000000000000000}`},
	{`{"n":9007199254740993}`, ``},
	{`{"n":9007199254740993.0}`, ``},
	{`{"n":[[0.1000000000000000055]]}`, ``},
	{`{"n":1e400}`, ``},
	{`{"n":-1e400}`, ``},
	{`{"n":1e-400}`, ``},
	{`{"n":1e99999999999999999999}`, ``},
	{`{"n":0e99999999999999999999}`, ``},
	{`{"n":1.7976931348623157e308}`, `{"n":1.7976931348623157e+308}`},
	{`{"n":5e-324}`, `{"n":5e-324}`},
	{`{"s":"\u0061\/\u20ac\n\u0001<&>\u2028"}`, "{\"s\":\"a/€\\n\\u0001<&>\u2028\"}"},
	{"{\"\uff5e\":1,\"\U0001F600\":2,\"z\":3}", "{\"z\":3,\"\U0001F600\":2,\"\uff5e\":1}"}, // by UTF-16
	{"{\"e\u0301\":1,\"\u00e9\":2}", "{\"e\u0301\":1,\"\u00e9\":2}"},                       // which are two names
}

func TestHashArguments(t *testing.T) {
	t.Parallel()
	for _, h := range hashes {
		got, refusal := capability.HashArguments(parsed(h[0]))
		if h[1] == "" {
			if refusal == nil || refusal.Code != capability.ArgumentUnprovable {
				t.Errorf("%s: %q, %v", h[0], got, refusal)
			}
			continue
		}
		sum := sha256.Sum256([]byte(h[1]))
		if want := base64.RawURLEncoding.EncodeToString(sum[:]); got != want || refusal != nil {
			t.Errorf("%s: got %q and %v, want %q", h[0], got, refusal, want)
		}
	}
	if got, refusal := capability.HashArguments(evaluation.Object{}); refusal != nil || got != "RBNvo1WzZ4oRRq0W9-hknpT7T8If536DEMBg9hyq_4o" {
		t.Errorf("of none: %q, %v", got, refusal)
	}
}
