package clients_test

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"policy-service/schemas"
)

var updateTypes = flag.Bool("update-types", false, "write the types of the clients anew")

// A typeOf is a type of the clients, and the schema of the OpenAPI document that says its form.
type typeOf struct{ name, schema, without string }

// clientTypes are the types of the values between callers and clients. The members that the
// clients add by themselves are left out.
var clientTypes = []typeOf{
	{"Entity", "Entity", ""},
	{"Action", "Action", ""},
	{"Question", "EvaluationRequest", "options"},
	{"Obligation", "Obligations", ""}, // one of them
	{"Sought", "Searched", ""},
	{"SubjectQuery", "SubjectSearchRequest", "page"},
	{"ResourceQuery", "ResourceSearchRequest", "page"},
	{"ActionQuery", "ActionSearchRequest", "page"},
	{"CapabilityAsk", "CapabilityRequest", "key proof approval_id encrypt_to"},
}

// TestTypes holds the types of both clients to the OpenAPI document.
func TestTypes(t *testing.T) {
	t.Parallel()
	var document struct {
		Components struct {
			Schemas map[string]schema `yaml:"schemas"`
		} `yaml:"components"`
	}
	if err := yaml.Unmarshal(schemas.OpenAPI, &document); err != nil {
		t.Fatal(err)
	}
	for file, write := range map[string]func(writing) string{
		"typescript/src/types.ts":            inTypeScript,
		"python/src/policy_service/types.py": inPython,
	} {
		want := write(writing{document.Components.Schemas})
		if *updateTypes {
			if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(file)
		if err != nil || string(got) != want {
			t.Errorf("%s is not as the OpenAPI document says (%v); run go test ./evaluation/clients -run TestTypes -update-types", file, err)
		}
	}
}

// schema is a schema of the document, as far as a type is made of it.
type schema struct {
	Ref         string     `yaml:"$ref"`
	Type        kinds      `yaml:"type"`
	Description string     `yaml:"description"`
	Enum        []any      `yaml:"enum"`
	Const       any        `yaml:"const"`
	Required    []string   `yaml:"required"`
	Properties  properties `yaml:"properties"`
	Items       *schema    `yaml:"items"`
}

// kinds are the types of a schema, without null: to the service, a member that is null is absent.
type kinds string

func (k *kinds) UnmarshalYAML(n *yaml.Node) error {
	var all []string
	if n.Kind == yaml.ScalarNode {
		all = []string{n.Value}
	} else if err := n.Decode(&all); err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(kind string) bool { return kind == "null" })
	*k = kinds(strings.Join(all, " "))
	return nil
}

// properties are the members of an object, in the order of the document.
type properties []property

type property struct {
	name string
	schema
}

func (p *properties) UnmarshalYAML(n *yaml.Node) error {
	for i := 0; i+1 < len(n.Content); i += 2 {
		one := property{name: n.Content[i].Value}
		if err := n.Content[i+1].Decode(&one.schema); err != nil {
			return err
		}
		*p = append(*p, one)
	}
	return nil
}

type writing struct{ schemas map[string]schema }

// free are the schemas that any object of JSON fits.
var free = []string{"Properties", "Context"}

// names is the client's name of a schema that has one.
func names(ref string) string {
	ref = strings.TrimPrefix(ref, "#/components/schemas/")
	at := slices.IndexFunc(clientTypes, func(t typeOf) bool { return t.schema == ref })
	if at < 0 {
		return ""
	}
	return clientTypes[at].name
}

// form is a schema as a type: the words of a language make it.
func (w writing) form(s schema, l language) string {
	ref := strings.TrimPrefix(s.Ref, "#/components/schemas/")
	switch {
	case slices.Contains(free, ref):
		return l.object
	case names(s.Ref) != "":
		return names(s.Ref)
	case ref != "":
		return w.form(w.schemas[ref], l)
	case s.Const != nil:
		return fmt.Sprintf(l.literal, s.Const)
	case s.Enum != nil: // a later service, or another one, may know more
		return l.words["string"]
	case s.Type == "array":
		return fmt.Sprintf(l.list, w.form(*cmp.Or(s.Items, &schema{}), l))
	case s.Type == "object" && len(s.Properties) > 0:
		return l.record(w, s)
	case s.Type == "object":
		return l.object
	}
	return cmp.Or(l.words[string(s.Type)], l.any)
}

type language struct {
	object, list, any, literal string
	words                      map[string]string
	record                     func(writing, schema) string
}

func (w writing) members(t typeOf) (all []property, required []string) {
	s := w.schemas[t.schema]
	if s.Items != nil {
		s = *s.Items
	}
	without := strings.Fields(t.without)
	for _, p := range s.Properties {
		if !slices.Contains(without, p.name) {
			all = append(all, p)
		}
	}
	return all, s.Required
}

const generated = "Made of the OpenAPI document by go test ./evaluation/clients -run TestTypes -update-types."

func inTypeScript(w writing) string {
	l := language{
		object: "JsonObject", list: "readonly (%s)[]", any: "Json", literal: "%q",
		words: map[string]string{"string": "string", "integer": "number", "number": "number", "boolean": "boolean"},
	}
	line := func(p property, required []string) string {
		sign := "?"
		if slices.Contains(required, p.name) {
			sign = ""
		}
		return p.name + sign + ": " + strings.NewReplacer("(string)", "string", "(Json)", "Json").Replace(w.form(p.schema, l))
	}
	l.record = func(w writing, s schema) string {
		var all []string
		for _, p := range s.Properties {
			all = append(all, line(p, s.Required))
		}
		return "{ " + strings.Join(all, "; ") + " }"
	}
	var b strings.Builder
	b.WriteString("// " + generated + "\n\n/** A value of JSON. A member that is undefined is left out. */\n" +
		"export type Json = null | boolean | number | string | readonly Json[] | JsonObject;\n\n" +
		"/** An object of JSON. */\nexport interface JsonObject {\n\treadonly [name: string]: Json | undefined;\n}\n")
	for _, t := range clientTypes {
		fmt.Fprintf(&b, "\n/** %s in the OpenAPI document. */\nexport interface %s {\n", t.schema, t.name)
		all, required := w.members(t)
		for _, p := range all {
			if p.Description != "" {
				b.WriteString("\t/** " + p.Description + " */\n")
			}
			b.WriteString("\t" + line(p, required) + ";\n")
		}
		b.WriteString("}\n")
	}
	return b.String()
}

func inPython(w writing) string {
	l := language{
		object: "JsonObject", list: "Sequence[%s]", any: "Any", literal: "Literal[%q]",
		words: map[string]string{"string": "str", "integer": "int", "number": "float", "boolean": "bool"},
	}
	var inner strings.Builder // the records inside of others have a name of their own in Python
	line := func(p property, required []string) string {
		form := w.form(p.schema, l)
		if !slices.Contains(required, p.name) {
			form = "NotRequired[" + form + "]"
		}
		return "    " + p.name + ": " + form + "\n"
	}
	var within string
	l.record = func(w writing, s schema) string {
		var all []string
		for _, p := range s.Properties {
			all = append(all, strings.TrimSuffix(line(p, s.Required), "\n"))
		}
		name := within
		fmt.Fprintf(&inner, "\n\nclass %s(TypedDict):\n    \"\"\"A member of the type that follows.\"\"\"\n\n%s\n", name, strings.Join(all, "\n"))
		return name
	}
	var b strings.Builder
	b.WriteString("# " + generated + "\n\"\"\"Types of the values between a program and the client.\"\"\"\n\nfrom __future__ import annotations\n\n" +
		"from typing import Any, Literal, Mapping, NotRequired, Sequence, TypedDict, Union\n\n" +
		`Json = Union[None, bool, int, float, str, Sequence["Json"], Mapping[str, "Json"]]` + "\nJsonObject = Mapping[str, Any]\n")
	for _, t := range clientTypes {
		all, required := w.members(t)
		var lines strings.Builder
		inner.Reset()
		for _, p := range all {
			within = t.name + strings.ToUpper(p.name[:1]) + p.name[1:]
			if p.Description != "" {
				lines.WriteString("    # " + p.Description + "\n")
			}
			lines.WriteString(line(p, required))
		}
		fmt.Fprintf(&b, "%s\n\nclass %s(TypedDict):\n    \"\"\"%s in the OpenAPI document.\"\"\"\n\n%s", inner.String(), t.name, t.schema, lines.String())
	}
	return b.String()
}
