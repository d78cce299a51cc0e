package lock_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"policy-service/schemas"
)

// TestSchema holds the published schema of the file to what is written, and to what no reader takes.
func TestSchema(t *testing.T) {
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(schemas.ToolsLock))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("lock", document); err != nil {
		t.Fatal(err)
	}
	schema, err := compiler.Compile("lock")
	if err != nil {
		t.Fatal(err)
	}
	fits := func(text string) bool {
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
		return err == nil && schema.Validate(v) == nil
	}
	if !fits(small) {
		t.Error("what is written does not fit the schema")
	}
	for _, edit := range [][2]string{
		{`"version": 1`, `"version": 2`}, {`"version": 1,`, `"version": 1, "mode": "off",`}, {`"tools": {}`, `"prompts": {}`}, {`"tools": {}`, `"instructions": "", "tools": {}`},
		{`"digest": "T`, `"hidden": true, "digest": "T`}, {`"digest": "T`, `"digest": "`}, {`"name": "get"`, `"name": ""`},
	} {
		if text := strings.Replace(small, edit[0], edit[1], 1); text == small || fits(text) {
			t.Errorf("it fits the schema: %s", edit[1])
		}
	}
}
