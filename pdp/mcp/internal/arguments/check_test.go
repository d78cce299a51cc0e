package arguments

import (
	"strings"
	"testing"
)

// compiled is a schema that compiles.
func compiled(t testing.TB, schema string, m Members) *Schema {
	t.Helper()
	s, err := Compile([]byte(schema), m)
	if err != nil {
		t.Fatalf("%.300s: %v", schema, err)
	}
	return s
}

// told is what is said of arguments, a line a problem.
func told(t testing.TB, s *Schema, arguments string) string {
	t.Helper()
	problems, err := s.Check([]byte(arguments))
	if err != nil {
		t.Fatalf("%.300s: %v", arguments, err)
	}
	lines := make([]string, len(problems))
	for n, p := range problems {
		lines[n] = p.String()
	}
	return strings.Join(lines, "\n")
}

// Each problem says where, and what is wanted, in an order that does not change; and no value.
func TestProblems(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ schema, arguments, want string }{
		{`{"type":"object","properties":{"n":{"type":"integer"}},"required":["n","m"]}`, `{"n":"SECRET"}`,
			"/m: is missing\n/n: is of type string, and must be of type integer"},
		{`{"type":"object","properties":{"n":{"type":["integer","null"]}}}`, `{"n":1.5}`, "/n: is of type number, and must be of type null or integer"},
		{`{"type":"object","additionalProperties":false,"properties":{"a":{}}}`, `{"a":1,"b/c~":2,"a\u202eb":3}`,
			"/a\\u202eb: is not a member that the schema lists\n/b~1c~0: is not a member that the schema lists"},
		{`{"properties":{"a":{"enum":["x",1]},"b":{"const":"x"}}}`, `{"a":"SECRET","b":"SECRET"}`,
			"/a: must be one of the values that the schema lists in enum\n/b: must be the value that the schema has as const"},
		{`{"properties":{"a":{"minLength":3},"b":{"maxLength":2,"pattern":"^SCHEMA$"}}}`, `{"a":"éé","b":"SECRET"}`,
			"/a: has too few characters: at least 3\n/b: has too many characters: at most 2\n/b: must match the pattern of the schema"},
		{`{"properties":{"a":{"minimum":9007199254740993,"multipleOf":0.01}}}`, `{"a":9007199254740992}`, "/a: must be at least 9007199254740993"},
		{`{"properties":{"a":{"multipleOf":0.01},"b":{"exclusiveMaximum":1e2}}}`, `{"a":0.105,"b":100}`, "/a: must be a multiple of 0.01\n/b: must be less than 1e2"},
		{`{"properties":{"a":{"items":{"type":"string"},"uniqueItems":true,"maxItems":2}}}`, `{"a":["x",1,"x"]}`,
			"/a: has too many elements: at most 2\n/a/2: is equal to another element, and must not be\n/a/1: is of type number, and must be of type string"},
		{`{"properties":{"a":{"anyOf":[{"type":"integer"},{"type":"null"}]}}}`, `{"a":"SECRET"}`, "/a: is of type string, and must be of type null or integer"},
		{`{"properties":{"a":{"anyOf":[{"$ref":"#/$defs/m"},{"type":"null"}]}},"$defs":{"m":{"type":"object","required":["x"]}}}`, `{"a":{}}`, "/a/x: is missing"},
		{`{"properties":{"a":{"oneOf":[{"required":["x"]},{"required":["y"]}]}}}`, `{"a":{"x":1,"y":1}}`, "/a: fits more than one of the 2 forms that the schema lists in oneOf"},
		{`{"properties":{"a":{"oneOf":[{"required":["x"]},{"required":["y"]}]}}}`, `{"a":{}}`, "/a: fits none of the 2 forms that the schema lists in oneOf"},
		{`{"not":{"required":["a"]}}`, `{"a":1}`, "the arguments: is what the schema excludes"},
		{`{"dependentRequired":{"a":["b"]},"propertyNames":{"maxLength":1}}`, `{"a":1,"cc":2}`,
			"/b: is missing: it must stand beside a\n/cc: has a name that the schema does not allow in propertyNames"},
		{`{"properties":{"a":{"format":"email"}}}`, `{"a":"none"}`, ""},
		{`{"$schema":"http://json-schema.org/draft-07/schema#","properties":{"a":{"format":"email"}}}`, `{"a":"none"}`, ""},
		{`{"properties":{"a":{"type":"integer"}}}`, `{"a":1.0}`, ""},
		{`{"properties":{"a":{"type":"integer"}}}`, `{"a":null}`, "/a: is of type null, and must be of type integer"},
		{`{"type":"object","minProperties":1}`, ``, "the arguments: has too few members: at least 1"},
	} {
		arguments := c.arguments
		if arguments == "" {
			problems, err := compiled(t, c.schema, Open).Check(nil)
			if err != nil || len(problems) != 1 || problems[0].String() != c.want {
				t.Errorf("no arguments: %v, %v", problems, err)
			}
			continue
		}
		if got := told(t, compiled(t, c.schema, Open), arguments); got != c.want {
			t.Errorf("%s with %s:\n%s\nand not\n%s", c.arguments, c.schema, got, c.want)
		}
	}
}

// What is closed is as if the schema said so itself, where it lists members and does not say what else there may be.
func TestClosed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ schema, arguments, want string }{
		{`{"properties":{"a":{}}}`, `{"a":1}`, ""},
		{`{"properties":{"a":{}}}`, `{"b":1}`, "/b: is not a member that the schema lists"},
		{`{"type":"object"}`, `{"b":1}`, "/b: is not a member that the schema lists"},
		{`{"type":"object"}`, `{}`, ""},
		{`{"additionalProperties":true}`, `{"b":1}`, ""},
		{`{"additionalProperties":{"type":"integer"}}`, `{"b":1}`, ""},
		{`{"patternProperties":{"^b":{}}}`, `{"b":1,"c":2}`, "/c: is not a member that the schema lists"},
		{`{"properties":{"a":{"properties":{"b":{}}}}}`, `{"a":{"c":1}}`, "/a/c: is not a member that the schema lists"},
		{`{"properties":{"a":{"type":"object"}}}`, `{"a":{"c":1}}`, ""},
		{`{"properties":{"a":{"items":{"properties":{"b":{}}}}}}`, `{"a":[{"b":1},{"c":1}]}`, "/a/1/c: is not a member that the schema lists"},
		{`{"allOf":[{"properties":{"a":{}}},{"properties":{"b":{}}}]}`, `{"a":1,"b":1}`, ""},
		{`{"allOf":[{"properties":{"a":{}}},{"properties":{"b":{}}}]}`, `{"c":1}`, "/c: is not a member that the schema lists"},
		{`{"properties":{"a":{"anyOf":[{"$ref":"#/$defs/x"},{"type":"null"}]}},"$defs":{"x":{"properties":{"b":{}}}}}`, `{"a":{"c":1}}`, "/a/c: is not a member that the schema lists"},
		{`{"properties":{"a":{}},"not":{"properties":{"a":{"properties":{"x":{"const":1}},"required":["x"]}}}}`, `{"a":{"x":1,"y":2}}`, "the arguments: is what the schema excludes"},
	} {
		if got := told(t, compiled(t, c.schema, Closed), c.arguments); got != c.want {
			t.Errorf("%s with %s:\n%s\nand not\n%s", c.arguments, c.schema, got, c.want)
		}
	}
}

// What is told of one call is bounded, however much is wrong with it.
func TestProblemsAreBounded(t *testing.T) {
	t.Parallel()
	s := compiled(t, `{"additionalProperties":false}`, Open)
	var b strings.Builder
	b.WriteString("{")
	for n := range 2000 {
		if n > 0 {
			b.WriteString(",")
		}
		b.WriteString(`"` + strings.Repeat("x", 300) + string(rune('a'+n%26)) + strings.Repeat("y", n/26) + `":1`)
	}
	problems, err := s.Check([]byte(b.String() + "}"))
	if err != nil || len(problems) != mostProblems {
		t.Fatal(len(problems), err)
	}
	if text := Text(problems); len(text) > mostProblems*(mostPointer+200) || !strings.HasSuffix(text, "No more problems are listed.") {
		t.Errorf("%d bytes: %s", len(text), text)
	}
}

// What is no object, or cannot be read in one way, does not fit, whatever the schema says.
func TestUnreadable(t *testing.T) {
	t.Parallel()
	s := compiled(t, `{}`, Open)
	for _, text := range []string{`null`, `[]`, `"x"`, `1`, ``, `{"a":1,"a":2}`, `{"a":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`, "{\"a\":\"\xff\"}"} {
		if problems, err := s.Check([]byte(text)); err == nil {
			t.Errorf("%.40q: %v", text, problems)
		}
	}
	if problems, err := s.Check([]byte(`{"a":1e400,"b":-1e-999999999999999999999}`)); err != nil || problems != nil {
		t.Error(problems, err)
	}
	n := compiled(t, `{"properties":{"a":{"minimum":1}}}`, Open)
	if got := told(t, n, `{"a":1e-999999999999999999999}`); got != "/a: is a number that is too long to be compared" {
		t.Error(got)
	}
}
