package arguments

import (
	"fmt"
	"strings"
	"testing"

	"policy-service/pdp/pdptest/mcptest"
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

var must = mcptest.Must

// told are the problems of arguments, a line each.
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

// Each problem names the place and the rule, in an order that does not change; and no value.
func TestProblems(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ schema, arguments, want string }{
		{`{"type":"object","properties":{"n":{"type":"integer"}},"required":["n","m"]}`, `{"n":"SECRET"}`,
			"/m: is missing\n/n: is of type string, and must be of type integer"},
		{`{"type":"object","properties":{"n":{"type":["integer","null"]}}}`, `{"n":1.5}`, "/n: is of type number, and must be of type integer or null"},
		{`{"type":"object","additionalProperties":false,"properties":{"a":{}}}`, `{"a":1,"b/c~":2,"a\u202eb":3}`,
			"/a\\u202eb: is not a member that the schema lists\n/b~1c~0: is not a member that the schema lists"},
		{`{"properties":{"a":{"enum":["x",1]},"b":{"const":"x"}}}`, `{"a":"SECRET","b":"SECRET"}`,
			"/a: does not fit the schema's enum\n/b: does not fit the schema's const"},
		{`{"properties":{"a":{"minLength":3},"b":{"maxLength":2,"pattern":"^SCHEMA$"}}}`, `{"a":"éé","b":"SECRET"}`,
			"/a: does not fit the schema's minLength\n/b: does not fit the schema's maxLength\n/b: does not fit the schema's pattern"},
		{`{"properties":{"a":{"minimum":9007199254740993,"multipleOf":0.01}}}`, `{"a":9007199254740992}`, "/a: does not fit the schema's minimum"},
		{`{"properties":{"a":{"multipleOf":0.01},"b":{"exclusiveMaximum":1e2}}}`, `{"a":0.105,"b":100}`, "/a: does not fit the schema's multipleOf\n/b: does not fit the schema's exclusiveMaximum"},
		{`{"properties":{"a":{"items":{"type":"string"},"uniqueItems":true,"maxItems":2}}}`, `{"a":["x",1,"x"]}`,
			"/a: does not fit the schema's maxItems\n/a: does not fit the schema's uniqueItems\n/a/1: is of type number, and must be of type string"},
		{`{"properties":{"a":{"anyOf":[{"type":"integer"},{"type":"null"}]}}}`, `{"a":"SECRET"}`, "/a: is of type string, and must be of type integer or null"},
		{`{"properties":{"a":{"anyOf":[{"$ref":"#/$defs/m"},{"type":"null"}]}},"$defs":{"m":{"type":"object","required":["x"]}}}`, `{"a":{}}`, "/a/x: is missing"},
		{`{"properties":{"a":{"oneOf":[{"required":["x"]},{"required":["y"]}]}}}`, `{"a":{"x":1,"y":1}}`, "/a: does not fit the schema's oneOf"},
		{`{"properties":{"a":{"oneOf":[{"required":["x"]},{"required":["y"]}]}}}`, `{"a":{}}`, "/a: does not fit the schema's oneOf"},
		{`{"not":{"required":["a"]}}`, `{"a":1}`, "the arguments: does not fit the schema's not"},
		{`{"dependentRequired":{"a":["b"]},"propertyNames":{"maxLength":1}}`, `{"a":1,"cc":2}`,
			"/b: is missing\n/cc: has a name that does not fit the schema's propertyNames"},
		{`{"properties":{"a":{"format":"email"}}}`, `{"a":"none"}`, ""},
		{`{"$schema":"http://json-schema.org/draft-07/schema#","properties":{"a":{"format":"email"}}}`, `{"a":"none"}`, ""},
		{`{"properties":{"a":{"type":"integer"}}}`, `{"a":1.0}`, ""},
		{`{"properties":{"a":{"type":"integer"}}}`, `{"a":null}`, "/a: is of type null, and must be of type integer"},
		{`{"type":"object","minProperties":1}`, ``, "the arguments: does not fit the schema's minProperties"},
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

// A closed schema refuses further members, where it lists some and does not say itself which others there may be.
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
		{`{"properties":{"a":{"properties":{"c":{}}},"b":{}}}`, `{"a":{"d":1},"b":2}`, "/a/d: is not a member that the schema lists"},
		{`{"properties":{"a":{"type":"integer"},"b":{}}}`, `{"a":"x","b":2}`, "/a: is of type string, and must be of type integer"},
		{`{"$schema":"http://json-schema.org/draft-07/schema#","properties":{"a":{"$ref":"#/definitions/x"}},"definitions":{"x":{"properties":{"b":{}}}}}`, `{"a":{"b":1,"c":2}}`, "/a/c: is not a member that the schema lists"},
		{`{"properties":{"a":{"$ref":"#"}}}`, `{"a":{"a":{"a":{},"b":1}}}`, "/a/a/b: is not a member that the schema lists"},
		{`{"properties":{"a":{"contains":{"properties":{"b":{}},"required":["b"]}}}}`, `{"a":[{"b":1,"c":2}]}`, ""},
		{`{"if":{"properties":{"a":{"properties":{"x":{}}}}},"then":{"properties":{"b":{}}}}`, `{"a":{"y":1},"b":1}`, ""},
		{`{"properties":{"a":{}},"not":{"properties":{"a":{"properties":{"x":{"const":1}},"required":["x"]}}}}`, `{"a":{"x":1,"y":2}}`, "the arguments: does not fit the schema's not"},
	} {
		if got := told(t, compiled(t, c.schema, Closed), c.arguments); got != c.want {
			t.Errorf("%s with %s:\n%s\nand not\n%s", c.arguments, c.schema, got, c.want)
		}
	}
}

// The problems of one call are bounded, however many there are.
func TestProblemsAreBounded(t *testing.T) {
	t.Parallel()
	s := compiled(t, `{"additionalProperties":false}`, Open)
	var b strings.Builder
	b.WriteString("{")
	for n := range 2000 {
		if n > 0 {
			b.WriteString(",")
		}
		fmt.Fprintf(&b, `"%d%s":1`, n, strings.Repeat("x", 300))
	}
	problems, err := s.Check([]byte(b.String() + "}"))
	if err != nil || len(problems) != mostProblems {
		t.Fatal(len(problems), err)
	}
	if text := Text(problems); len(text) > mostProblems*(mostPointer+200) || !strings.HasSuffix(text, "No more problems are listed.") {
		t.Errorf("%d bytes: %s", len(text), text)
	}
}

// A value that is no object, or cannot be read in one way, fits no schema.
func TestUnreadable(t *testing.T) {
	t.Parallel()
	s := compiled(t, `{}`, Open)
	for _, text := range []string{`null`, `[]`, `"x"`, `1`, ``, `{"a":1,"a":2}`, `{"a":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`, "{\"a\":\"\xff\"}"} {
		if problems, err := s.Check([]byte(text)); err == nil {
			t.Errorf("%.40q: %v", text, problems)
		}
	}
	for _, number := range []string{"1e400", "-1e-999999999999999999999", "1E+101", strings.Repeat("1", 101), "0." + strings.Repeat("0", 99)} {
		if problems, err := s.Check([]byte(`{"a":` + number + `}`)); err == nil || !strings.HasPrefix(err.Error(), "the arguments/a: a number") {
			t.Errorf("%s: %v, %v", number, problems, err)
		}
	}
}
