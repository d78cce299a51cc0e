package toolschema_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/mcp/toolschema"
)

// Whatever a server lists, there is a schema of it that loads, and it has no other lines than ours.
func FuzzGenerate(f *testing.F) {
	files, err := filepath.Glob("testdata/lists/*.json")
	if err != nil || len(files) == 0 {
		f.Fatal(files, err)
	}
	for _, file := range files {
		list, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		for _, t := range tools(f, "s", list) {
			text, err := t.Definition.MarshalJSON()
			if err != nil {
				f.Fatal(err)
			}
			f.Add(t.Name, text)
		}
	}
	for _, input := range []string{
		`{"$ref":"#"}`, `{"$ref":"#/a/0","a":[{"$ref":"#/a/0"}]}`, `{"type":"object","properties":{"a":{"anyOf":[{"$ref":"#"},{"type":"null"}]}}}`,
		`{"type":["object","null"],"properties":{"\u2028":{"const":"*/\n"}},"required":[1,"\u2028"]}`, `{"type":"object","properties":[1],"required":{},"$id":7}`,
	} {
		f.Add("a\n;", []byte(`{"inputSchema":`+input+`}`))
	}
	const policy = `@id("a") permit(principal is user, action == Action::"tools/list", resource is mcp_server);`
	f.Fuzz(func(t *testing.T, name string, definition []byte) {
		d, err := evaluation.ParseWithNulls(definition, evaluation.DefaultLimits())
		if err != nil {
			return // no tool has such a definition
		}
		all := []toolschema.Tool{{Server: "s", Name: name, Definition: d}, {Server: "s", Name: "other", Definition: d}}
		s, err := toolschema.Generate(all, toolschema.Options{Whole: true})
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(s.Text) {
			if begins := strings.TrimLeft(line, " "); strings.HasPrefix(line, "action") && !strings.Contains(line, " in ") && !strings.Contains(line, "appliesTo") && !strings.HasPrefix(begins, `action "tool.invoke";`) {
				t.Errorf("it has the line %q", line)
			}
		}
		if _, err := json.Marshal(s.Notes); err != nil {
			t.Error(err)
		}
		bundle := fstest.MapFS{"tools.cedarschema": {Data: []byte(s.Text)}, "a.cedar": {Data: []byte(policy)}}
		if _, problems := pdp.Load(pdp.FS(bundle)); problems.Refuse() {
			t.Errorf("%v\n%s", problems, s.Text)
		}
	})
}
