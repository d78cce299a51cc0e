package document

import (
	"testing"

	"go.yaml.in/yaml/v3"
)

// What becomes JSON is what the YAML says, whatever tags are written.
func TestAppendJSONOfTags(t *testing.T) {
	for text, want := range map[string]string{
		"[True, FALSE, !!bool true]": "[true,false,true]",
		"!!bool yes":                 "",
		"!!bool '1, 2'":              "",
		"!!int '1, 2'":               "",
		"!!null x":                   "null",
	} {
		var n yaml.Node
		if err := yaml.Unmarshal([]byte(text), &n); err != nil {
			t.Fatal(err)
		}
		got, bad := AppendJSON(nil, n.Content[0])
		if string(got) != want || (bad == nil) != (want != "") {
			t.Errorf("%s: %s, %v", text, got, bad)
		}
	}
}
