package arguments

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"policy-service/evaluation"
)

// suiteGroup is a schema of the official JSON Schema test suite, with values that fit it and values that do not.
type suiteGroup struct {
	Description string
	Schema      json.RawMessage
	Tests       []struct {
		Description string
		Data        json.RawMessage
		Valid       bool
	}
}

// The official suite stands in the source of a module that ours needs, and the library has some cases besides. Each is one of
// three: checked, and right; a schema that refers to other documents; or one that is not supported.
func TestOfficialSuite(t *testing.T) {
	t.Parallel()
	checked, outside, dynamic := 0, 0, 0
	for _, from := range []struct{ module, dir string }{
		{"github.com/google/jsonschema-go", "jsonschema/testdata/draft2020-12"}, {"github.com/google/jsonschema-go", "jsonschema/testdata/draft7"},
		{"github.com/santhosh-tekuri/jsonschema/v6", "testdata/Extra-Test-Suite/tests/draft2020-12"}, {"github.com/santhosh-tekuri/jsonschema/v6", "testdata/Extra-Test-Suite/tests/draft2019-09"},
		{"github.com/santhosh-tekuri/jsonschema/v6", "testdata/Extra-Test-Suite/tests/draft4"}, {"github.com/santhosh-tekuri/jsonschema/v6", "testdata/Extra-Test-Suite/tests/draft7"},
	} {
		files, err := filepath.Glob(filepath.Join(moduleDir(t, from.module), from.dir, "*.json"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s has no files in %s: %v", from.module, from.dir, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			must(t, err)
			var groups []suiteGroup
			must(t, json.Unmarshal(text, &groups))
			for _, g := range groups {
				schema, err := Compile(inDraft(t, filepath.Base(from.dir), g.Schema), Open)
				switch {
				case err == nil:
				case strings.Contains(err.Error(), "nothing outside of the definition is read"):
					outside++
					continue
				case errors.Is(err, errDynamic):
					dynamic++
					continue
				case errors.Is(err, errLoops) && g.Description == "guard against infinite recursion":
					continue
				default:
					t.Errorf("%s: %s: %v", file, g.Description, err)
					continue
				}
				for _, c := range g.Tests {
					checked++
					value := suiteValue(t, c.Data)
					problems, err := schema.check(value)
					if (err == nil && len(problems) == 0) != c.Valid {
						t.Errorf("%s: %s: %s: valid is %v, and we say %v, %v", filepath.Base(file), g.Description, c.Description, c.Valid, problems, err)
					}
				}
			}
		}
	}
	t.Logf("%d checked; of schemas, %d refer elsewhere, %d have dynamic references", checked, outside, dynamic)
	if checked < 1900 || outside > 40 || dynamic > 16 {
		t.Errorf("only %d were checked: %d schemas refer elsewhere, %d have dynamic references", checked, outside, dynamic)
	}
}

func moduleDir(t testing.TB, module string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	must(t, err)
	return strings.TrimSpace(string(out))
}

// inDraft is a schema that says its draft, and is an object.
func inDraft(t *testing.T, draft string, schema json.RawMessage) []byte {
	if k := bytes.TrimSpace(schema)[0]; k != '{' {
		return []byte(`{"allOf":[` + string(schema) + `]}`)
	}
	var o map[string]json.RawMessage
	must(t, json.Unmarshal(schema, &o))
	if o["$schema"] == nil {
		o["$schema"] = json.RawMessage(map[string]string{
			"draft2020-12": `"https://json-schema.org/draft/2020-12/schema"`, "draft2019-09": `"https://json-schema.org/draft/2019-09/schema"`,
			"draft7": `"http://json-schema.org/draft-07/schema#"`, "draft4": `"http://json-schema.org/draft-04/schema#"`,
		}[draft])
	}
	if o["$schema"] == nil {
		t.Fatal("no draft", draft)
	}
	text, err := json.Marshal(o)
	must(t, err)
	return text
}

func suiteValue(t testing.TB, data []byte) evaluation.Value {
	t.Helper()
	o, err := evaluation.ParseWithNulls([]byte(`{"v":`+string(data)+`}`), limits)
	must(t, err)
	v, _ := o.Lookup("v")
	return v
}
