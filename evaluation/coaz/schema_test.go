package coaz_test

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/tools/txtar"

	"policy-service/evaluation"
	"policy-service/evaluation/coaz"
	"policy-service/schemas"
)

// TestSchema holds the JSON Schema of mappings to the compiler: what compiles is valid, and what is wrong in its form is
// neither.
func TestSchema(t *testing.T) {
	t.Parallel()
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(schemas.CoazMapping))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("mapping.json", document); err != nil {
		t.Fatal(err)
	}
	schema, err := compiler.Compile("mapping.json")
	if err != nil {
		t.Fatal(err)
	}
	valid := func(mapping string) bool { return schema.Validate(anyOf(t, mapping)) == nil }
	b := newBinding(t, coaz.Options{Inputs: []string{"request"}})
	compiles := func(mapping string) bool {
		o, err := evaluation.ParseWithNulls([]byte(mapping), wide())
		if err != nil {
			return false
		}
		if _, err := b.Compile(o, coaz.AuthZEN); err == nil {
			return true
		}
		if _, err := b.Compile(o, coaz.SEP); err == nil {
			return true
		}
		m, err := b.Parse(tool(t, mapping))
		return m != nil && err == nil
	}
	taken := 0
	for _, mapping := range mappings(t) {
		switch ok := compiles(mapping); {
		case ok && !valid(mapping):
			t.Errorf("it compiles, and is not valid: %.300s", mapping)
		case ok:
			taken++
		}
	}
	if taken < 60 {
		t.Errorf("only %d mappings compile", taken)
	}
	for _, mapping := range []string{
		`{}`, `[]`, `{"evaluation": {}}`, `{"evaluation": "$x"}`, `{"evaluations": {"evaluations": []}}`, `{"evaluations": {}}`, `{"search": {}}`,
		`{"evaluation": {"action": {"name": "a"}, "resource": {"type": "t", "id": "i"}}, "evaluations": {"evaluations": [{}]}}`,
		`{"evaluation": {"action": {"name": "a"}, "resource": {"type": "t"}}}`, `{"evaluation": {"action": {"name": ""}, "resource": {"type": "t", "id": "i"}}}`,
		`{"evaluation": {"action": {"name": "a"}, "resource": {"type": "t", "id": "i", "owner": "x"}}}`, `{"evaluation": {"action": "a", "resource": {"type": "t", "id": "i"}}}`,
		`{"evaluation": {"action": {"name": "a"}, "resource": {"type": "t", "id": "i"}, "options": {}}}`,
		`{"evaluation": {"action": {"name": "a"}, "resource": {"type": "t", "id": "i"}, "context": {"pdp": {}}}}`,
		`{"evaluation": {"action": {"name": "a"}, "resource": {"type": "t", "id": "i"}, "context": "$$x"}}`,
		`{"resource": {"type": "t", "id": "i"}, "subject": {"type": "user", "id": "$.token.sub"}}`,
		`{"resource": {"type": "t", "id": "i"}, "subject": {"type": "user", "id": "$.token.sub"}, "context": []}`,
	} {
		if valid(mapping) || mapping[0] == '{' && compiles(mapping) {
			t.Errorf("valid: %t, compiles: %t: %s", valid(mapping), compiles(mapping), mapping)
		}
	}
}

// mappings are those of the figures, the defaults, the bombs and many that are made of their parts.
func mappings(t *testing.T) (all []string) {
	t.Helper()
	files, err := filepath.Glob("testdata/figures/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range archive.Files {
			switch f.Name {
			case "mapping.json":
				all = append(all, string(f.Data))
			case "tool.json":
				schema, _ := object(t, string(f.Data)).Get("inputSchema")
				for _, name := range []string{"x-authzen-mapping", "x-coaz-mapping"} {
					if m, ok := schema.Object().Get(name); ok {
						all = append(all, string(jsonOf(t, m)))
					}
				}
			}
		}
	}
	for _, text := range defaultTexts(t) {
		all = append(all, string(text))
	}
	for _, mapping := range bombs(t) {
		if len(mapping) < 1<<16 {
			all = append(all, mapping)
		}
	}
	entities := []string{"", `{}`, `{"type": "t", "id": "i"}`, `{"type": "$params.name", "id": "$token.sub", "properties": {"p": "$params"}}`, `"$params.arguments"`, `{"id": "$token.sub"}`,
		`{"type": "t", "id": "i", "properties": "$params.arguments"}`, `{"name": "a"}`, `{"name": "$params.name", "properties": {}}`, `{"type": 7}`, `["a"]`, `"text"`}
	for _, subject := range entities {
		for _, resource := range entities {
			for _, action := range []string{`{"name": "a"}`, `"$params.arguments"`} {
				one := single(map[string]string{"subject": subject, "resource": resource, "action": action})
				var parts map[string]json.RawMessage
				if err := json.Unmarshal([]byte(one), &parts); err != nil {
					t.Fatal(err)
				}
				all = append(all, one, `{"evaluations": {"evaluations": [`+string(parts["evaluation"])+`]}}`)
			}
		}
		all = append(all, older(t, "resource", subject), older(t, "subject", subject), older(t, "action", subject), older(t, "context", subject))
	}
	return all
}
