package toolschema_test

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"policy-service/evaluation"
	"policy-service/pdp/internal/mcp/toolschema"
	"policy-service/pdp/pdptest/mcptest"
)

var update = flag.Bool("update", false, "write the goldens")

// golden holds a schema and its notes to a file.
func golden(t *testing.T, name string, s *toolschema.Schema) {
	t.Helper()
	file := "testdata/" + name
	if *update {
		must(t, os.WriteFile(file, []byte(s.Text), 0o600))
	}
	want, err := os.ReadFile(file)
	must(t, err)
	if diff := cmp.Diff(string(want), s.Text); diff != "" {
		t.Errorf("%s: -update\n%s", name, diff)
	}
}

// definition is the definition of a tool as a lock reads it.
func definition(text string) evaluation.Object {
	d, err := evaluation.ParseWithNulls([]byte(text), evaluation.Limits{Body: 256 << 10, Depth: 64, Values: 20_000})
	if err != nil {
		panic(err)
	}
	return d
}

func tool(name, input string) toolschema.Tool {
	return toolschema.Tool{Server: "s", Name: name, Definition: definition(`{"name":"` + name + `","inputSchema":` + input + `}`)}
}

// typeOf is the type of the one property x, without blanks, and what is noted.
func typeOf(t *testing.T, input string) (text string, notes []string) {
	t.Helper()
	s := generated(t, []toolschema.Tool{tool("t", input)}, toolschema.Options{Whole: true})
	for _, n := range s.Notes {
		what := ""
		if n.Narrow {
			what = "narrow:"
		}
		notes = append(notes, what+strings.TrimPrefix(n.Pointer, "/inputSchema"))
	}
	_, action, _ := strings.Cut(s.Text, `action "s:t"`)
	_, arguments, _ := strings.Cut(action, "    arguments")
	arguments, _, _ = strings.Cut(arguments, "\n  },\n")
	if problems := check(map[string]string{"tools.cedarschema": s.Text, "a.cedar": `@id("a") permit(principal, action == Action::"s:t", resource);`}); len(problems) > 0 {
		t.Errorf("%s: %v\n%s", input, problems, s.Text)
	}
	return strings.TrimSuffix(strings.Join(strings.Fields(arguments), " "), ","), notes
}

// atX is the place of the property x, as TestTypes writes it.
var atX = regexp.MustCompile(`(^|[ :])x`)

// Each form of a property, as R17 has it.
func TestTypes(t *testing.T) {
	for _, test := range []struct{ property, want, notes string }{
		{`{"type":"string"}`, "String", ""},
		{`{"type":"string","enum":["a","b\n\"// */"]}`, `String`, ""},
		{`{"enum":["a"]}`, `String`, ""},
		{`{"const":"a"}`, `String`, ""},
		{`{"const":3}`, `Long`, ""},
		{`{"enum":[true]}`, `Bool`, ""},
		{`{"enum":[1,"a"]}`, "", "x"},
		{`{"enum":[1.5]}`, "", "x"},
		{`{"enum":[[1]]}`, "", "x"},
		{`{"enum":["a",null]}`, `?String`, ""},
		{`{"type":"string","format":"date-time"}`, "datetime", "narrow:x"},
		{`{"type":"string","format":"date"}`, "String", ""},
		{`{"type":"string","format":"ipv4"}`, "ipaddr", ""},
		{`{"type":"string","format":"ipv6"}`, "ipaddr", "narrow:x"},
		{`{"type":"integer"}`, "Long", ""},
		{`{"type":"number"}`, "", "x"},
		{`{"type":"number","multipleOf":0.01}`, "decimal", ""},
		{`{"type":"number","multipleOf":1e-4}`, "decimal", ""},
		{`{"type":"number","multipleOf":0.00001}`, "", "x"},
		{`{"type":"number","multipleOf":0}`, "", "x"},
		{`{"type":"number","multipleOf":"1"}`, "", "x"},
		{`{"type":["integer","number"],"multipleOf":0.5}`, "decimal", ""},
		{`{"type":"boolean"}`, "Bool", ""},
		{`{"type":["string","null"]}`, "?String", ""},
		{`{"type":["string"]}`, "String", ""},
		{`{"type":"string","nullable":true}`, "?String", ""},
		{`{"type":["string","integer"]}`, "", "x"},
		{`{"type":"null"}`, "", "x"},
		{`{"type":"any"}`, "", "x"},
		{`{"type":7}`, "", "x"},
		{`{}`, "", "x"},
		{`true`, "", "x"},
		{`false`, "", "x"},
		{`7`, "", "x"},
		{`{"type":"array","items":{"type":"string"}}`, "Set<String>", ""},
		{`{"type":"array","items":{"enum":["a"]}}`, `Set<String>`, ""},
		{`{"type":"array","items":{"type":"array","items":{"type":"integer"}}}`, "Set<Set<Long>>", ""},
		{`{"type":"array"}`, "", "x"},
		{`{"type":"array","items":true}`, "", "x/items x"},
		{`{"type":"array","items":[{"type":"string"}]}`, "", "x"},
		{`{"type":"array","items":{"type":"string"},"prefixItems":[{"type":"integer"}]}`, "", "x"},
		{`{"type":"array","items":{"type":["string","null"]}}`, "", "x"},
		{`{"type":"array","items":{"type":"object","properties":{"a":{"type":"integer"},"b":{}},"required":["a"]}}`, "Set<{ a: Long, }>", "x/items/properties/b"},
		{`{"type":"object"}`, "", "x"},
		{`{"type":"object","properties":{}}`, "", "x"},
		{`{"type":"object","additionalProperties":{"type":"string"}}`, "", "x"},
		{`{"type":"object","additionalProperties":false}`, "{}", ""},
		{`{"type":"object","properties":{"a b":{"type":"string"},"in":{"type":"string"},"é":{"type":"string"},"":{"type":"string"}},"required":["in"]}`, `{ "a b"?: String, "in": String, "\u{e9}"?: String, }`, "x/properties"},
		{`{"type":"object","properties":{"a":{"type":"string"}},"additionalProperties":{}}`, "{ a?: String, }", "x/additionalProperties"},
		{`{"type":"object","properties":{"a":{"type":"string"}},"patternProperties":{"^b":{}}}`, "{ a?: String, }", "x/patternProperties"},
		{`{"anyOf":[{"type":"string"},{"type":"null"}]}`, "?String", ""},
		{`{"oneOf":[{"const":null},{"type":"integer"}],"default":null}`, "?Long", ""},
		{`{"allOf":[{"$ref":"#/$defs/n"}]}`, "Long", ""},
		{`{"anyOf":[{"type":"string"},{"type":"integer"}]}`, "", "x/anyOf"},
		{`{"allOf":[{"type":"string"},{"minLength":1}]}`, "", "x/allOf"},
		{`{"allOf":[{"type":"string"}],"anyOf":[{"type":"string"}]}`, "", "x"},
		{`{"anyOf":[]}`, "", "x/anyOf"},
		{`{"anyOf":7}`, "", "x/anyOf"},
		{`{"type":"string","anyOf":[{"minLength":1},{"maxLength":1}]}`, "String", "x/anyOf"},
		{`{"$ref":"#/$defs/n"}`, "Long", ""},
		{`{"$ref":"#/$defs/a%2Fb"}`, "", "x"},
		{`{"$ref":"#/$defs/a~1b"}`, "?String", ""},
		{`{"$ref":"#/$defs/list/allOf/1"}`, "Bool", ""},
		{`{"$ref":"#/$defs/node"}`, "{ value?: Long, }", "/$defs/node/properties/children/items /$defs/node/properties/children"},
		{`{"$ref":"#/$defs/loop"}`, "", "/$defs/loop"},
		{`{"$ref":"#"}`, "", "/properties/x"},
		{`{"$ref":"https://example.com/a"}`, "", "x"},
		{`{"$ref":"#name"}`, "", "x"},
		{`{"$ref":7}`, "", "x"},
	} {
		input := `{"type":"object","properties":{"x":` + test.property + `},"required":["x"],"$defs":{"n":{"type":"integer"},"a/b":{"type":["string","null"]},"list":{"allOf":[1,{"type":"boolean"}]},
			"node":{"type":"object","properties":{"value":{"type":"integer"},"children":{"type":"array","items":{"$ref":"#/$defs/node"}}}},"loop":{"$ref":"#/$defs/loop"}}}`
		want := "?: {}"
		if of, optional := strings.CutPrefix(test.want, "?"); of != "" {
			want = ": { x: " + of + ", }"
			if optional {
				want = "?: { x?: " + of + ", }"
			}
		}
		notes := strings.Fields(atX.ReplaceAllString(test.notes, "${1}/properties/x"))
		got, noted := typeOf(t, input)
		if test.property == `{"$ref":"#"}` {
			// The arguments themselves are another x, which holds a third: that one is the recursion.
			notes, want = []string{"/properties/x"}, ": { x: {}, }"
		}
		if got != want || !slices.Equal(noted, notes) {
			t.Errorf("%s:\ngot  %s %q\nwant %s %q", test.property, got, noted, want, notes)
		}
	}
}

// What the arguments as a whole can be.
func TestArguments(t *testing.T) {
	for _, test := range []struct{ input, want, notes string }{
		{`{"type":"object"}`, "?: {}", ""},
		{`{"type":"object","properties":{}}`, "?: {}", ""},
		{`{"type":"object","additionalProperties":true}`, "?: {}", "/additionalProperties"},
		{`{"type":"string"}`, "?: {}", ""},
		{`{}`, "?: {}", ""},
		{`7`, "?: {}", ""},
		{`{"type":"object","oneOf":[{"required":["a"]}],"properties":{"a":{"type":"string"}}}`, "?: { a?: String, }", "/oneOf"},
		{`{"$ref":"#/$defs/a","$defs":{"a":{"type":"object","properties":{"b":{"type":"boolean"}},"required":["b"]}}}`, ": { b: Bool, }", ""},
		{`{"$ref":"#/$defs/a","properties":{"c":{"type":"string"}},"$defs":{"a":{"type":"object","properties":{"b":{"type":"boolean"}}}}}`, "?: { b?: Bool, }", "/properties"},
		{`{"type":"object","properties":{"a":{"type":"string"}},"if":{"required":["a"]},"then":{"properties":{"b":{"type":"string"}}}}`, "?: { a?: String, }", "/then"},
		{`{"type":"object","dependentSchemas":{"a":{"properties":{"b":{"type":"string"}}}},"properties":{"a":{"type":"string"}}}`, "?: { a?: String, }", "/dependentSchemas"},
		{`{"type":"object","properties":{"a":{"$ref":"#/$defs/b"}},"$defs":{"b":{"$id":"https://example.com/","type":"string"}}}`, "?: {}", "/properties/a"},
	} {
		got, notes := typeOf(t, test.input)
		if got != test.want || !strings.Contains(strings.Join(notes, " "), test.notes) {
			t.Errorf("%s: %s %q", test.input, got, notes)
		}
	}
}

// A definition cannot write into the schema, whatever it says.
func TestHostileDefinitions(t *testing.T) {
	const evil = "\\n};\\naction \\\"s:admin\\\" in \\\"tool.invoke\\\";\\u2028\\u202e\\r//*/ permit"
	definitions := []toolschema.Tool{
		tool("a", `{"type":"object","properties":{"`+evil+`":{"enum":["`+evil+`"]},"b":{"type":"`+evil+`"},"`+evil+`2":{}}}`),
		{Server: "s", Name: "x\n};\naction \"s:admin\";\u202e", Definition: definition(`{"inputSchema":{"type":"object"}}`)},
		{Server: "s", Name: "*", Definition: definition(`{}`)},
		{Server: "s", Name: "", Definition: definition(`{}`)},
		{Server: "s", Name: strings.Repeat("x", 300), Definition: definition(`{}`)},
		{Server: "s", Name: "none", Definition: definition(`{}`)},
		{Server: "s", Name: "twice", Definition: definition(`{}`)},
		{Server: "s", Name: "twice", Definition: definition(`{"inputSchema":{}}`)},
	}
	s := generated(t, definitions, toolschema.Options{Whole: true})
	for _, r := range s.Text {
		if r != '\n' && (r < ' ' || r > '~') && r != '…' {
			t.Fatalf("it has %q", r)
		}
	}
	var actions int
	for line := range strings.Lines(s.Text) {
		if strings.HasPrefix(line, `action "s:`) {
			actions++
		}
	}
	if actions != 4 { // the group, a, x and none
		t.Errorf("%d actions:\n%s", actions, s.Text)
	}
	golden(t, "hostile.cedarschema", s)
	if problems := check(map[string]string{"t.cedarschema": s.Text, "a.cedar": `@id("a") permit(principal, action == Action::"s:a", resource);`}); len(problems) > 0 {
		t.Error(problems)
	}
	for _, why := range []string{"same name", "group", "at most", "has none"} {
		if !slices.ContainsFunc(s.Notes, func(n toolschema.Note) bool { return strings.Contains(n.Why, why) }) {
			t.Errorf("nothing is noted of %q: %v", why, s.Notes)
		}
	}
}

// However large definitions are, the schema is one that a bundle takes, or there is none.
func TestBounds(t *testing.T) {
	doubling := `{"type":"object","properties":{"a":{"$ref":"#/$defs/t0"}},"$defs":{`
	for n := range 40 {
		doubling += fmt.Sprintf(`"t%d":{"type":"object","properties":{"a":{"$ref":"#/$defs/t%d"},"b":{"$ref":"#/$defs/t%d"}}},`, n, n+1, n+1)
	}
	doubling += `"t40":{"type":"string"}}}`
	wide := `{"type":"object","properties":{`
	for n := range 1500 {
		wide += fmt.Sprintf(`"a rather long name of a property, %d":{"type":"string"},`, n)
	}
	wide += `"z":{"type":"string"}}}`
	many := []toolschema.Tool{tool("doubling", doubling)}
	for n := range 20 {
		many = append(many, tool(fmt.Sprintf("wide%d", n), wide))
	}
	s := generated(t, many, toolschema.Options{Whole: true})
	if problems := check(map[string]string{"t.cedarschema": s.Text, "a.cedar": `@id("a") permit(principal, action == Action::"s:wide1", resource);`}); len(problems) > 0 {
		t.Error(problems)
	}
	if n := len(s.Text); n > 1<<20 || n < 800<<10 {
		t.Errorf("it has %d bytes", n)
	}
	var tiny []toolschema.Tool
	for n := range 10_000 {
		tiny = append(tiny, tool(fmt.Sprint("t", n), `{"type":"object"}`))
	}
	if _, err := toolschema.Generate(tiny, toolschema.Options{}); err == nil || !strings.Contains(err.Error(), "more than the 1048576 bytes") {
		t.Errorf("10,000 tools: %v", err)
	}
}

// The part of the tools lies beside an author's schema, and the order of the tools is no matter.
func TestPart(t *testing.T) {
	all := []toolschema.Tool{tool("b", `{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`), tool("a", `{"type":"object"}`), {Server: "q", Name: "a", Definition: definition(`{"inputSchema":{"type":"object"}}`)}}
	o := toolschema.Options{People: []string{"person"}, Agents: []string{"bot"}, Said: []string{"workflow_id"}}
	s := generated(t, all, o)
	golden(t, "part.cedarschema", s)
	slices.Reverse(all)
	if again := generated(t, all, o); again.Text != s.Text {
		t.Error("another order is another text")
	}
	own := `entity person, bot, tool; action "tool.invoke";`
	policies := `@id("a") permit(principal is bot, action == Action::"s:b", resource) when { context.arguments.n < 3 && context has workflow_id && context.workflow_id == "w" };
		@id("b") forbid(principal, action in Action::"q:*", resource);`
	if problems := check(map[string]string{"schema.cedarschema": own, "tools.cedarschema": s.Text, "a.cedar": policies}); len(problems) > 0 {
		t.Error(problems)
	}
	if problems := check(map[string]string{"tools.cedarschema": s.Text, "a.cedar": policies}); len(problems) == 0 {
		t.Error("it loads alone")
	}
	if problems := check(map[string]string{"schema.cedarschema": own, "tools.cedarschema": s.Text, "a.cedar": strings.Replace(policies, ".n < 3", ".m < 3", 1)}); len(problems) == 0 {
		t.Error("a policy reads an argument that the tool does not take")
	}
}

func TestOptions(t *testing.T) {
	for _, o := range []toolschema.Options{
		{People: []string{"a b"}}, {Agents: []string{"Long"}}, {People: []string{"tool"}}, {Agents: []string{"A::b"}, Whole: true}, {People: []string{""}},
		{Said: []string{"pdp"}}, {Said: []string{"arguments"}}, {Said: []string{"approved"}}, {Said: []string{""}},
	} {
		if _, err := toolschema.Generate(nil, o); err == nil {
			t.Errorf("%+v", o)
		}
	}
	s := generated(t, nil, toolschema.Options{Whole: true, Labels: []string{"impact", "a b"}, Properties: []string{"groups", "roles"}})
	for _, want := range []string{`labels?: {"a b"?: String, impact?: String}`, "roles?: Set<String>,", "// groups?: …", "// There are no tools."} {
		if !strings.Contains(s.Text, want) {
			t.Errorf("it lacks %s:\n%s", want, s.Text)
		}
	}
}

var must = mcptest.Must
