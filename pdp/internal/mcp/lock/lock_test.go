package lock_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"policy-service/pdp/internal/mcp/lock"
	"policy-service/pdp/pdptest/mcptest"
	"policy-service/schemas"
)

func toolOf(t testing.TB, definition string) lock.Tool {
	t.Helper()
	tool, err := lock.ParseTool([]byte(definition))
	must(t, err)
	return tool
}

func serverOf(t testing.TB, instructions string, definitions ...string) lock.Server {
	t.Helper()
	var tools []lock.Tool
	for _, d := range definitions {
		tools = append(tools, toolOf(t, d))
	}
	s, err := lock.Of(instructions, tools)
	must(t, err)
	return s
}

const small = `{
  "version": 1,
  "servers": {
    "jira": {
      "instructions": "Be kind.\n\u202eTwice.",
      "tools": {
        "create": {
          "digest": "1-pH5WDAqi1BSirl9aiNhuMc8MWgY8pWRqzDO7thmn4",
          "definition": {
            "description": "Creates\u200b.",
            "inputSchema": {
              "properties": {
                "n": {
                  "default": null,
                  "maximum": 5e-1
                }
              },
              "type": "object"
            },
            "name": "create"
          }
        },
        "get": {
          "digest": "T3jLf0NqX_bwJcna8ufsOfCTYWZ28RS04K8Xu5u57js",
          "definition": {
            "name": "get"
          }
        }
      }
    },
    "mail": {
      "tools": {}
    }
  }
}
`

func smallFile(t testing.TB) lock.File {
	return lock.File{Servers: map[string]lock.Server{
		"mail": serverOf(t, ""),
		"jira": serverOf(t, "Be kind.\n\u202eTwice.", `{"name":"get"}`,
			`{"inputSchema":{"type":"object","properties":{"n":{"maximum":0.50,"default":null}}},"name":"create","description":"Creates`+"\u200b"+`."}`),
	}}
}

func TestThereIsOneWayToWriteAFile(t *testing.T) {
	f := smallFile(t)
	if diff := cmp.Diff(small, string(f.Text())); diff != "" {
		t.Fatalf("written (-want +got):\n%s", diff)
	}
	path := filepath.Join(t.TempDir(), "tools.lock.json")
	must(t, f.Write(path))
	again, err := lock.Read(path)
	must(t, err)
	if got := string(again.Text()); got != small || len(lock.Compare(f, again)) > 0 {
		t.Errorf("read and written:\n%s", got)
	}
	must(t, os.WriteFile(path, []byte("{"), 0o600))
	if _, err := lock.Read(path); err == nil || !strings.HasPrefix(err.Error(), path+":1:2: ") {
		t.Errorf("a mistake does not name the file: %v", err)
	}
}

// A lock that was edited is one that nobody has accepted.
func TestAnEditedFileIsRefused(t *testing.T) {
	for what, test := range map[string]struct{ old, new, where, says string }{
		"a description":      {"Creates", "Deletes", "8:22", "it is not as it was written: with the digest of each definition"},
		"a digest":           {"1-pH", "1-pI", "8:25", "with the digest of each definition"},
		"a digest away":      {`          "digest": "T3jLf0NqX_bwJcna8ufsOfCTYWZ28RS04K8Xu5u57js",` + "\n", "", "24:13", "from here on"},
		"a name":             {`"name": "get"`, `"name": "got"`, "1:1", "/servers/jira/tools/get: the definition is of a tool with another name"},
		"no definition":      {",\n          \"definition\": {\n            \"name\": \"get\"\n          }", "", "1:1", "/servers/jira/tools/get: the definition is missing"},
		"a tool without":     {`"tools": {}`, `"tools": {"": {}}`, "1:1", "/servers/mail/tools/: the definition is missing"},
		"a member of all":    {`"version": 1,`, `"version": 1, "mode": "off",`, "2:16", "from here on"},
		"a member of a tool": {`"digest": "T`, `"hidden": true, "digest": "T`, "24:12", "from here on"},
		"a server's":         {`"tools": {}`, `"prompts": {}`, "32:8", "from here on"},
		"no tools":           {`      "tools": {}` + "\n", "", "32:5", "from here on"},
		"a version":          {`"version": 1`, `"version": 2`, "1:1", "/version: the version of the file is not 1, which is what this release reads; use the release"},
		"no version":         {`  "version": 1,` + "\n", "", "1:1", "it lacks the version; take back what was edited"},
		"a member twice":     {`"mail"`, `"jira"`, "31:5", "/servers/jira: the name is there twice"},
		"twice in a tool":    {`"type": "object"`, `"type": "object", "type": "string"`, "18:33", "the name is there twice"},
		"an order":           {`"mail"`, `"a"`, "4:6", "sorted"},
		"an inner order":     {"\"description\": \"Creates\\u200b.\",\n            ", "", "8:22", "from here on"},
		"an indent":          {`  "version"`, `   "version"`, "2:3", "from here on it is not as it was written"},
		"an escape away":     {`\u202e`, "\u202e", "5:34", "with what cannot be seen escaped"},
		"an escape more":     {"Be kind", `\u0042e kind`, "5:24", "from here on"},
		"a number":           {"5e-1", "0.5", "15:30", "from here on"},
		"empty instructions": {`"tools": {}`, `"instructions": "", "tools": {}`, "32:8", "from here on"},
		"a text":             {`"Be kind.\n\u202eTwice."`, "7", "5:23", "/servers/jira/instructions: a lock has another value here"},
		"an object":          {"{}", "[]", "32:16", "/servers/mail/tools: a lock has another value here"},
		"more behind":        {"\n}\n", "\n}\n{}", "36:1", "it is no JSON"},
		"a merge":            {`  "servers"`, "<<<<<<< HEAD\n  \"servers\"", "3:1", "it is no JSON: git marks what it could not merge"},
		"an end":             {"\n}\n", "\n", "35:1", "it ends too early"},
		"line ends":          {"\n", "\r\n", "1:2", "from here on"},
		"a definition":       {`"name": "get"`, `"name": "get", "": "\ud800"`, "26:33", "it is no JSON"},
		"no text":            {small, "", "1:1", "it ends too early"},
	} {
		text := strings.Replace(small, test.old, test.new, -1)
		if text == small {
			t.Fatalf("%s: nothing is edited", what)
		}
		f, err := lock.Parse([]byte(text))
		var e *lock.Error
		if !errors.As(err, &e) {
			t.Errorf("%s: read %v, %v", what, f, err)
			continue
		}
		if got := fmt.Sprintf("%d:%d", e.Line, e.Column); got != test.where || !strings.Contains(err.Error(), test.says) || e.Try == "" {
			t.Errorf("%s: got %v, want %s: …%s", what, err, test.where, test.says)
		}
	}
}

func TestWhatCannotBeLocked(t *testing.T) {
	many := make([]lock.Tool, 1001)
	for n := range many {
		many[n] = toolOf(t, fmt.Sprintf(`{"name":"t%d"}`, n))
	}
	for what, make := range map[string]func() (lock.Server, error){
		"two tools by the name": func() (lock.Server, error) { return lock.Of("", []lock.Tool{many[1], many[1]}) },
		"more than 1000 tools":  func() (lock.Server, error) { return lock.Of("", many) },
		"more than 65536 bytes": func() (lock.Server, error) { return lock.Of(strings.Repeat("x", 65537), nil) },
	} {
		if _, err := make(); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for text, why := range map[string]string{`[]`: "definition", `{}`: "no name", `{"name":7}`: "no name", `{"name":"a","name":"b"}`: "definition",
		`{"name":"a","x":1e9999999999999999999}`: "too large to be compared"} {
		if _, err := lock.ParseTool([]byte(text)); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v", text, err)
		}
	}
	path := filepath.Join(t.TempDir(), "lock.json")
	err := lock.File{Servers: map[string]lock.Server{"a": {Instructions: strings.Repeat("x", 65537), Tools: map[string]lock.Tool{}}}}.Write(path)
	if _, none := os.Stat(path); err == nil || !errors.Is(none, os.ErrNotExist) {
		t.Errorf("what nobody could read is written: %v, %v", err, none)
	}
}

// FuzzParse: whatever is read is written as it was.
func FuzzParse(f *testing.F) {
	f.Add([]byte(small))
	f.Add([]byte(`{"version":1,"servers":{}}`))
	f.Add([]byte("{\n  \"version\": 1,\n  \"servers\": {}\n}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		read, err := lock.Parse(text)
		if err != nil {
			var e *lock.Error
			if !errors.As(err, &e) || e.Line < 1 || e.Column < 1 || e.Try == "" {
				t.Errorf("%T %v", err, err)
			}
			return
		}
		if string(read.Text()) != string(text) {
			t.Errorf("%q becomes %q", text, read.Text())
		}
		if changes := lock.Compare(read, read); len(changes) > 0 {
			t.Errorf("it differs from itself: %v", changes)
		}
	})
}

// TestSchema holds the published schema of the file to what is written, and to what no reader takes.
func TestSchema(t *testing.T) {
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(schemas.ToolsLock))
	must(t, err)
	compiler := jsonschema.NewCompiler()
	must(t, compiler.AddResource("lock", document))
	schema, err := compiler.Compile("lock")
	must(t, err)
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

var must = mcptest.Must
