package config

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"
)

// shelf has a key of every kind that holds others.
type shelf struct {
	Boxes map[string]box    `yaml:"boxes" doc:"Boxes by name."`
	Notes map[string]Object `yaml:"notes" doc:"What anybody says."`
	Free  Object            `yaml:"free" doc:"Anything."`
	Most  Size              `yaml:"most" default:"1MiB" min:"1KiB" max:"1GiB" doc:"The most."`
	Files []string          `yaml:"files" path:"yes" doc:"Files."`
	Sorts []string          `yaml:"sorts" enum:"new,old" min:"1" doc:"Sorts."`
	Often Rate              `yaml:"often" default:"10/s" min:"1/m" max:"1000/s" doc:"How often."`
}

type box struct {
	Kept   map[string]string `yaml:"kept" path:"yes" doc:"Where things are."`
	File   string            `yaml:"key_file" doc:"A file."`
	Kind   string            `yaml:"kind" default:"open" enum:"open,shut" doc:"The kind."`
	Most   Size              `yaml:"most" default:"4MiB" min:"1KiB" doc:"The most of one box."`
	Labels map[string]string `yaml:"labels" doc:"Labels."`
	Inner  map[string]inner  `yaml:"inner" doc:"Boxes within."`
	Lid    *inner            `yaml:"lid" doc:"A lid."`
}

type inner struct {
	Hidden bool `yaml:"hidden" doc:"Whether it is hidden."`
	Count  int  `yaml:"count" default:"3" min:"1" doc:"How many."`
}

var shelfForm = Form[shelf]{Title: "A shelf", Prefix: "SHELF_", FileVariable: "SHELF_CONFIG"}

func readShelf(t *testing.T, text string) (shelf, Origins, string, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "s.yaml")
	must(t, os.WriteFile(file, []byte(text), 0o600))
	var s shelf
	from, err := shelfForm.Read(Given{File: file}, &s)
	return s, from, file, err
}

const fullShelf = `most: 64KiB
often: 30/m
free: {a: "$params.x", n: 9007199254740993, f: 1.50, t: true, z: null, l: [1, {b: "2"}]}
notes:
  resources/templates/list: {evaluation: {subject: {id: $token.sub}}}
boxes:
  jira:
    key_file: k.pem
    kind: shut
    labels: {integration: jira, app.example/name: "x: y"}
    inner:
      create.ticket: {hidden: true}
      delete: {}
    kept: {x: y.pem}
  bare: {}
files: [a.pem, /b.pem]
sorts: [old, new]
`

func TestMapsAreRead(t *testing.T) {
	t.Parallel()
	s, from, file, err := readShelf(t, fullShelf)
	must(t, err)
	jira := s.Boxes["jira"]
	if jira.File != filepath.Join(filepath.Dir(file), "k.pem") || jira.Kind != "shut" || jira.Labels["app.example/name"] != "x: y" {
		t.Errorf("got %+v", jira)
	}
	if !jira.Inner["create.ticket"].Hidden || len(jira.Inner) != 2 || len(s.Boxes) != 2 {
		t.Errorf("got %+v", s.Boxes)
	}
	want := `{"a":"$params.x","n":9007199254740993,"f":1.50,"t":true,"z":null,"l":[1,{"b":"2"}]}`
	if string(s.Free) != want {
		t.Errorf("got %s, want %s", s.Free, want)
	}
	if got := string(s.Notes["resources/templates/list"]); got != `{"evaluation":{"subject":{"id":"$token.sub"}}}` {
		t.Errorf("got %s", got)
	}
	if dir := filepath.Dir(file); jira.Kept["x"] != filepath.Join(dir, "y.pem") || s.Files[0] != filepath.Join(dir, "a.pem") || s.Files[1] != "/b.pem" {
		t.Errorf("got %v %v", jira.Kept, s.Files)
	}
	if s.Most != 64<<10 || s.Often != 0.5 {
		t.Errorf("got %v %v", s.Most, s.Often)
	}
	for path, want := range map[string]string{
		`boxes.jira.inner."create.ticket".hidden`: ":12:31", `boxes.jira.labels."app.example/name"`: ":10:51",
		"notes.resources/templates/list": ":5:29", "free/l/1/b": ":3:83",
	} {
		if from[path] != file+want {
			t.Errorf("%s is from %q, want %s", path, from[path], want)
		}
	}
}

func TestMistakesInMaps(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"boxes: [a]":                           ":1:8: boxes must be a mapping; write key: value lines",
		"boxes: {a: 1}":                        ":1:12: boxes.a must be a mapping; write key: value lines",
		"boxes: {a: }":                         "boxes.a has no value; ",
		"boxes: {a: {}, a: {}}":                `:1:16: the key "a" occurs twice; keep one`,
		"boxes: {1: {}}":                       ":1:9: a key must be a plain name",
		"boxes: {'': {}}":                      ":1:9: a name below boxes is empty; write one",
		"boxes:\n  a:\n    knd: open\n":        `:3:5: unknown key "knd"; use one of inner, kept, key_file, kind, labels, lid, most`,
		"boxes:\n  a:\n    kind: ajar\n":       ":3:11: boxes.a.kind is not one of: open, shut; ",
		"boxes:\n  a.b:\n    kind: ajar\n":     `:3:11: boxes."a.b".kind is not one of: open, shut; `,
		"boxes: {a: {inner: {b: {count: 0}}}}": "boxes.a.inner.b.count is less than 1; ",
		"boxes: {a: {most: 1B}}":               "boxes.a.most is less than 1KiB; ",
		"boxes: {a: {labels: {b: 1}}}":         ":1:25: boxes.a.labels.b must be a string; ",
		"boxes: {a: {labels: {b: ''}}}":        "boxes.a.labels.b is empty; ",
		"boxes: {a: &x {}, b: *x}":             ":1:22: aliases are not read here; ",
		"free: [1]":                            ":1:7: free must be a mapping; ",
		"free: {a: {b: 1, b: 2}}":              `:1:18: the key "b" occurs twice; keep one`,
		"free: {a: 2020-01-01}":                ":1:11: free/a is not a value that JSON has; ",
		"free: {a: [0x10]}":                    ":1:12: free/a/0 is not a value that JSON has; ",
		"free: {a: .inf}":                      "free/a is not a value that JSON has; ",
		"free: {a: !!binary aGk=}":             "free/a is not a value that JSON has; ",
		"free: {a: True}":                      "free/a is not a value that JSON has; ",
		"free: {a: ~}":                         "free/a has no value; ",
		"free: {a: &x {}, b: [*x]}":            ":1:22: aliases are not read here; ",
		"notes: {a: {<<: {}}}":                 "a key must be a plain name; ",
		"most: 12":                             ":1:7: most must be a size; write it like 512B, 64KiB or 4MiB",
		"most: 4MB":                            "most must be a size; ",
		"most: 0KiB":                           "most must be a size; ",
		"most: 9999999999GiB":                  "most must be a size; ",
		"most: 2GiB":                           "most is more than 1GiB; ",
		"sorts: [new, ripe]":                   ":1:14: sorts[1] is not one of: new, old; write one of them",
		"often: 10":                            "often must be a rate; write it like 10/s, 30/m or 100/h",
		"often: 1/h":                           "often is less than 1/m; ",
		"often: 1001/s":                        "often is more than 1000/s; ",
	} {
		_, _, file, err := readShelf(t, text)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), file+":") {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
}

func TestKeysOfMaps(t *testing.T) {
	t.Parallel()
	got := []string{}
	for _, k := range shelfForm.Keys() {
		got = append(got, k.Path+" "+k.Variable)
	}
	want := []string{
		"boxes ", "boxes.<name>.kept ", "boxes.<name>.key_file ", "boxes.<name>.kind ", "boxes.<name>.most ", "boxes.<name>.labels ", "boxes.<name>.inner ",
		"boxes.<name>.inner.<name>.hidden ", "boxes.<name>.inner.<name>.count ", "boxes.<name>.lid ", "boxes.<name>.lid.hidden ",
		"boxes.<name>.lid.count ", "notes ", "free ", "most SHELF_MOST", "files ", "sorts ", "often SHELF_OFTEN",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for assignment, want := range map[string]string{
		"SHELF_MOST=4KiB": "", "SHELF_OFTEN=2/s": "",
		"SHELF_FREE={}":           "free is more than a text or a number",
		"SHELF_BOXES={}":          "boxes is more than a text or a number",
		"SHELF_BOXES_A_KIND=open": "no key is called like this variable",
		"SHELF_MOST=4":            "SHELF_MOST: most must be a size; ",
	} {
		_, err := shelfForm.Read(Given{Environ: []string{assignment}}, &shelf{})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", assignment, err, want)
		}
	}
}

// A default in a map is that of every name, and whoever shares the map does not see it.
func TestDefaultsInMaps(t *testing.T) {
	t.Parallel()
	given := shelf{Boxes: map[string]box{"a": {Inner: map[string]inner{"b": {}}, Lid: &inner{}}}}
	filled := given
	shelfForm.SetDefaults(&filled)
	want := box{Kind: "open", Most: 4 << 20, Inner: map[string]inner{"b": {Count: 3}}, Lid: &inner{Count: 3}}
	if diff := cmp.Diff(want, filled.Boxes["a"]); diff != "" || filled.Most != 1<<20 || filled.Often != 10 {
		t.Error(diff, filled.Most, filled.Often)
	}
	if diff := cmp.Diff(box{Inner: map[string]inner{"b": {}}, Lid: &inner{}}, given.Boxes["a"]); diff != "" {
		t.Error("the caller's own changed:", diff)
	}
	filled.Boxes["a"].Inner["b"] = inner{Count: -1}
	if err := shelfForm.Verify(&filled); err == nil || !strings.Contains(err.Error(), "boxes.a.inner.b.count is less than 1") {
		t.Errorf("got %v", err)
	}
	if changed := shelfForm.Changed(given, filled); len(changed) == 0 || changed[0].Path != "boxes" {
		t.Errorf("got %v", changed)
	}
}

// What is printed can be read, says the same, and is what the schema takes.
func TestMapsAreWritten(t *testing.T) {
	t.Parallel()
	s, from, file, err := readShelf(t, fullShelf)
	must(t, err)
	var b bytes.Buffer
	must(t, shelfForm.Write(&b, s, from))
	for _, want := range []string{
		"most: 64KiB # " + file + ":1:7\n", "often: 30/m # " + file, "  bare:\n    kind: open # default\n    most: 4MiB # default\n",
		"  resources/templates/list: {\"evaluation\": {\"subject\": {\"id\": \"$token.sub\"}}} # " + file + ":5:29\n",
		"      app.example/name: 'x: y' # " + file + ":10:51\n", "      create.ticket:\n        hidden: true # ",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in\n%s", want, b.String())
		}
	}
	again, _, _, err := readShelf(t, b.String())
	if err != nil {
		t.Fatalf("%v\n%s", err, b.String())
	}
	shelfForm.SetDefaults(&s)
	if diff := cmp.Diff(s, again); diff != "" {
		t.Error(diff)
	}
	for text, ok := range map[string]bool{
		fullShelf: true, b.String(): true, "boxes: {a: {knd: open}}": false, "boxes: {a: 1}": false, "boxes: {'': {}}": false, "free: 1": false, "sorts: [ripe]": false, "sorts: [new]": true, "sorts: []": false,
		"most: 12": false, "often: 10": false, "boxes: {a: {labels: {b: 1}}}": false, "boxes: {a: {inner: {b: {count: 0}}}}": false,
	} {
		if err := schemaOf(t).Validate(plainJSON(t, text)); (err == nil) != ok {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestBelow(t *testing.T) {
	t.Parallel()
	_, from, _, err := readShelf(t, "notes: {a/b: {x.y: [{'0': c}], '0': d, e/f: g}}")
	must(t, err)
	for pointer, want := range map[string]string{
		"": "notes.a/b", "/x.y/0/0": "notes.a/b/x.y/0/0", "/0": "notes.a/b/0", "/x.y/7": "notes.a/b/x.y", "/e~1f": "notes.a/b/e~1f", "/nothing/0": "notes.a/b",
	} {
		if got := from.Below(Entry("notes", "a/b"), pointer); got != want {
			t.Errorf("%q: got %s, want %s", pointer, got, want)
		}
	}
}

func schemaOf(t *testing.T) *jsonschema.Schema {
	t.Helper()
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(shelfForm.Schema()))
	must(t, err)
	compiler := jsonschema.NewCompiler()
	must(t, compiler.AddResource("s.json", document))
	return compiler.MustCompile("s.json")
}

func plainJSON(t *testing.T, text string) any {
	t.Helper()
	var value any
	must(t, yaml.Unmarshal([]byte(text), &value))
	encoded, err := json.Marshal(value)
	must(t, err)
	decoded, err := jsonschema.UnmarshalJSON(bytes.NewReader(encoded))
	must(t, err)
	return decoded
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
