package arguments

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"policy-service/pdp/pdptest/night"
)

// schemaWriter writes schemas and values that meet often: few names, few values, all keywords.
type schemaWriter struct{ *rand.Rand }

func (w schemaWriter) one(of ...string) string { return of[w.IntN(len(of))] }

func (w schemaWriter) name() string { return w.one("a", "b", "c") }

func (w schemaWriter) list(most int, of func() string) string {
	all := make([]string, 1+w.IntN(most))
	for i := range all {
		all[i] = of()
	}
	return strings.Join(all, ",")
}

// named are members with different names.
func (w schemaWriter) named(of func() string) string {
	all := map[string]json.RawMessage{}
	for range 1 + w.IntN(3) {
		all[w.name()] = json.RawMessage(of())
	}
	text, _ := json.Marshal(all)
	return string(text)
}

func (w schemaWriter) value(depth int) string {
	switch n := w.IntN(8); {
	case depth > 0 && n < 2:
		return w.named(func() string { return w.value(depth - 1) })
	case depth > 0 && n < 4:
		return "[" + w.list(3, func() string { return w.value(depth - 1) }) + "]"
	}
	return w.one("null", "true", "false", "0", "1", "1.0", "1.5", "10", "1e1", "-3", `"a"`, `"ab"`, `"abc"`, `""`, "9007199254740993", "9007199254740992", "{}", "[]")
}

func (w schemaWriter) schema(depth int) string {
	if depth == 0 || w.IntN(12) == 0 {
		return w.one("true", "false", "{}", `{"type":"integer"}`, `{"type":["string","null"]}`, `{"$ref":"#/$defs/x"}`, `{"minimum":1}`, `{"type":"object"}`)
	}
	below := func() string { return w.schema(depth - 1) }
	all := map[string]json.RawMessage{}
	for range 1 + w.IntN(3) {
		keyword, text := w.keyword(below)
		all[keyword] = json.RawMessage(text)
	}
	text, _ := json.Marshal(all)
	return string(text)
}

func (w schemaWriter) keyword(below func() string) (keyword, text string) {
	switch w.IntN(20) {
	case 0:
		return "type", w.one(`"object"`, `"array"`, `"string"`, `"number"`, `"integer"`, `["boolean","null"]`)
	case 1:
		return "enum", "[" + w.value(1) + "," + w.value(0) + "]"
	case 2:
		return "const", w.value(1)
	case 3, 4, 5:
		return "properties", w.named(below)
	case 6:
		return "patternProperties", `{"^[ab]":` + below() + `}`
	case 7:
		return w.one("additionalProperties", "unevaluatedProperties", "propertyNames", "items", "unevaluatedItems", "contains", "not"), below()
	case 8:
		return "required", `["` + w.name() + `"]`
	case 9:
		return w.one("minProperties", "maxProperties", "minItems", "maxItems", "minLength", "maxLength", "minContains", "maxContains"), fmt.Sprint(w.IntN(3))
	case 10:
		return w.one("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), w.one("0", "1", "1.5", "9007199254740993")
	case 11:
		return "multipleOf", w.one("0.5", "2", "0.01", "3")
	case 12, 13:
		return w.one("allOf", "anyOf", "oneOf", "prefixItems"), "[" + w.list(3, below) + "]"
	case 14:
		return w.one("if", "then", "else"), below()
	case 15:
		return "dependentSchemas", w.named(below)
	case 16:
		return "dependentRequired", w.named(func() string { return `["` + w.name() + `"]` })
	case 17:
		return "uniqueItems", "true"
	case 18:
		return "pattern", w.one(`"^a"`, `"b$"`)
	}
	return "unevaluatedProperties", below()
}

// Of schemas and arguments as nobody would write them, we say what the library says.
func TestSameAsLibrary(t *testing.T) {
	t.Parallel()
	n := night.Cases(1000)
	fit, misfit := 0, 0
	for seed := range n {
		w := schemaWriter{rand.New(rand.NewPCG(uint64(seed), 20))}
		schema := `{"allOf":[` + w.schema(3) + `,` + w.schema(2) + `],"$defs":{"x":{"properties":{"a":{"$ref":"#/$defs/x"}},"maxProperties":2}}}`
		s, err := Compile([]byte(schema), Open)
		if err != nil {
			t.Fatalf("%s: %v", schema, err)
		}
		fits := library(t, schema)
		for range 8 {
			arguments := w.named(func() string { return w.value(2) })
			problems, err := s.Check([]byte(arguments))
			if err != nil {
				t.Fatalf("%s with %s: %v", arguments, schema, err)
			}
			switch fits := fits(arguments); {
			case fits != (len(problems) == 0):
				t.Fatalf("%s with %s: the library says %v, and we %v", arguments, schema, fits, problems)
			case fits:
				fit++
			default:
				misfit++
			}
		}
	}
	if min(fit, misfit) < n/4 {
		t.Errorf("%d fit, and %d do not", fit, misfit)
	}
	t.Logf("%d fit, and %d do not", fit, misfit)
}
