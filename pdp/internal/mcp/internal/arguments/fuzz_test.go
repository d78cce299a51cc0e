package arguments

import (
	"strings"
	"testing"
)

// No schema and no arguments panic, nothing is said twice in two ways, and no value is ever told: values bear a mark.
func FuzzCheck(f *testing.F) {
	for _, schema := range []string{
		`{"type":"object","properties":{"a":{"type":"integer"}},"required":["b"]}`, `{"additionalProperties":false}`,
		`{"properties":{"a":{"enum":["MARKED"]},"b":{"const":"MARKED","pattern":"MARKED"}}}`, `{"patternProperties":{"^a":{"minLength":9}}}`,
		`{"unevaluatedProperties":false,"anyOf":[{"properties":{"a":{}}}]}`, `{"properties":{"a":{"contains":{"type":"string"},"prefixItems":[{}],"unevaluatedItems":false}}}`,
		`{"if":{"required":["a"]},"then":{"required":["b"]},"else":{"not":{}}}`, `{"$dynamicRef":"#x","$defs":{"y":{"$dynamicAnchor":"x","maxProperties":0}}}`,
		`{"$schema":"http://json-schema.org/draft-04/schema#","properties":{"a":{"minimum":1,"exclusiveMinimum":true}}}`,
		`{"dependentSchemas":{"a":{"required":["b"]}},"dependentRequired":{"a":["c"]},"propertyNames":{"maxLength":1}}`,
	} {
		for _, arguments := range []string{`{}`, `{"a":"MARKED"}`, `{"a":["MARKED",{"a":"MARKED"}],"b":"MARKED"}`, `{"a":1e3,"b":null}`} {
			f.Add(schema, arguments, false)
			f.Add(schema, arguments, true)
		}
	}
	f.Fuzz(func(t *testing.T, schema, arguments string, closed bool) {
		m := Open
		if closed {
			m = Closed
		}
		s, err := Compile([]byte(schema), m)
		if err != nil {
			return
		}
		problems, err := s.Check([]byte(arguments))
		again, _ := s.Check([]byte(arguments))
		text := Text(problems)
		if text != Text(again) {
			t.Errorf("%s\nand then\n%s", text, Text(again))
		}
		// A name may bear the mark as well: then it may be told.
		if named := strings.Contains(strings.ReplaceAll(strings.ReplaceAll(schema+arguments, `"MARKED",`, ""), `:"MARKED"`, ""), "MARKED"); err == nil && !named && strings.Contains(text, "MARKED") {
			t.Errorf("a value is told: %s", text)
		}
	})
}
