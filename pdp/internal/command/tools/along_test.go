package tools

import (
	"strings"
	"testing"

	"policy-service/evaluation"
)

// A schema that does not say what there is has no name missing.
func TestAlong(t *testing.T) {
	t.Parallel()
	schema, err := evaluation.ParseWithNulls([]byte(`{"required":["a"],"properties":{"a":{"type":"string"},"to":{"type":"object","properties":{"team":{}}},"open":{"properties":{},"additionalProperties":true},
		"any":{"type":"object"},"one":{"oneOf":[{}],"properties":{}},"list":{"type":"array","items":{"properties":{"x":{}}}}}}`), evaluation.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string][2]string{
		"a": {"", ""}, "b": {"b", ""}, "to/team": {"", "to"}, "to/taem": {"taem", "to"}, "b/c": {"b", ""}, "open/x": {"", "open"}, "any/x": {"", "any"}, "one/x": {"", "one"}, "list/x": {"", "list"}, "a/x": {"", ""}, "": {"", ""},
	} {
		if missing, optional := along(schema, strings.FieldsFunc(path, func(r rune) bool { return r == '/' })); missing != want[0] || optional != want[1] {
			t.Errorf("%s: %q is missing, %q is optional", path, missing, optional)
		}
	}
}
