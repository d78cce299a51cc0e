package lock_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"policy-service/pdp/internal/mcp/lock"
)

// old is a definition with something of each kind, in which new puts something else.
const old = `{"name":"a","title":"T","description":"One.\nTwo.\nThree.","inputSchema":{"type":"object","required":["n","m"],"properties":{"n":{"maximum":1.0},"a/b~":{}},` +
	`"x-authzen-mapping":{"evaluation":{"action":{"name":"read"}}}},"outputSchema":{"type":"object"},"annotations":{"readOnlyHint":true},"authorization":{"required":true},"_meta":{"k":null}}`

func changed(t *testing.T, from, to string) string {
	t.Helper()
	if !strings.Contains(old, from) {
		t.Fatalf("nothing is changed: %s", from)
	}
	return strings.Replace(old, from, to, 1)
}

func TestChangesAreSaidInWords(t *testing.T) {
	b := `{"name":"b","description":"B.","inputSchema":{"type":"object"}}`
	for what, test := range map[string]struct {
		tools        []string
		instructions string
		want         string
	}{
		"nothing":         {[]string{old, b}, "I", ""},
		"the same number": {[]string{changed(t, "1.0", "1"), b}, "I", ""},
		"another order":   {[]string{b, changed(t, `"name":"a","title":"T"`, `"title":"T","name":"a"`)}, "I", ""},
		"description": {[]string{changed(t, `Two.`, `Two!\u200b\u001b[2J`), b}, "I", `
s: tool a: the description is changed
- Two.
+ Two!\u200b\u001b[2J`},
		"description away": {[]string{changed(t, `"description":"One.\nTwo.\nThree.",`, ``), b}, "I", `
s: tool a: the description is changed
- One.
- Two.
- Three.`},
		"an empty one": {[]string{changed(t, `One.\nTwo.\nThree.`, ``), b}, "I", `
s: tool a: the description is changed
- One.
- Two.
- Three.
+ `},
		"no text": {[]string{changed(t, `"One.\nTwo.\nThree."`, `7`), b}, "I", `
s: tool a: the description is changed
- One.
- Two.
- Three.
+ /description: 7`},
		"title": {[]string{changed(t, `"T"`, `"U"`), b}, "I", `
s: tool a: the title is changed
- T
+ U`},
		"input schema": {[]string{changed(t, `{"maximum":1.0},"a/b~":{}`, `{"maximum":0.5},"a/b~":{"enum":[1,{}]}`), b}, "I", `
s: tool a: the input schema is changed
- /inputSchema/properties/a~1b~0: {}
- /inputSchema/properties/n/maximum: 1
+ /inputSchema/properties/a~1b~0/enum/0: 1
+ /inputSchema/properties/a~1b~0/enum/1: {}
+ /inputSchema/properties/n/maximum: 5e-1`},
		"required": {[]string{changed(t, `["n","m"]`, `["n"]`), b}, "I", `
s: tool a: the input schema is changed
- /inputSchema/required: ["n","m"]
+ /inputSchema/required: ["n"]`},
		"no schema": {[]string{strings.Replace(old, old[strings.Index(old, `"inputSchema"`):strings.Index(old, `"outputSchema"`)], `"inputSchema":[],`, 1), b}, "I", `
s: tool a: the input schema is changed
- /inputSchema/properties/a~1b~0: {}
- /inputSchema/properties/n/maximum: 1
- /inputSchema/required: ["n","m"]
- /inputSchema/type: "object"
+ /inputSchema: []
s: tool a: the mapping is changed
- /inputSchema/x-authzen-mapping/evaluation/action/name: "read"`},
		"output schema": {[]string{changed(t, `"outputSchema":{"type":"object"}`, `"outputSchema":null`), b}, "I", `
s: tool a: the output schema is changed
- /outputSchema/type: "object"
+ /outputSchema: null`},
		"annotations": {[]string{changed(t, `"readOnlyHint":true`, `"readOnlyHint":false`), b}, "I", `
s: tool a: the annotations are changed
- /annotations/readOnlyHint: true
+ /annotations/readOnlyHint: false`},
		"mapping": {[]string{changed(t, `"read"`, `"write"`), b}, "I", `
s: tool a: the mapping is changed
- /inputSchema/x-authzen-mapping/evaluation/action/name: "read"
+ /inputSchema/x-authzen-mapping/evaluation/action/name: "write"`},
		"mapping in the older dialect": {[]string{changed(t, `"x-authzen-mapping"`, `"x-coaz-mapping":null,"x-authzen-mapping"`), strings.Replace(b, `"name"`, `"coaz":true,"name"`, 1)}, "I", `
s: tool a: the mapping is changed
+ /inputSchema/x-coaz-mapping: null
s: tool b: the mapping is changed
+ /coaz: true`},
		"authorization": {[]string{changed(t, `"required":true`, `"required":false`), b}, "I", `
s: tool a: the authorization is changed
- /authorization/required: true
+ /authorization/required: false`},
		"other": {[]string{changed(t, `"_meta":{"k":null}`, `"_meta":{},"icons":null`), b}, "I", `
s: tool a: other members are changed
- /_meta/k: null
+ /_meta: {}
+ /icons: null`},
		"several": {[]string{changed(t, `"title":"T","description":"One.`, `"title":"U","description":"Zero.`), b}, "I", `
s: tool a: the title is changed
- T
+ U
s: tool a: the description is changed
- One.
+ Zero.`},
		"new": {[]string{old, b, "{\"name\":\"c\u202e\"}"}, "I", `
s: tool "c\u202e": is new
+ /name: "c\u202e"`},
		"gone": {[]string{old}, "I", `
s: tool b: is gone
- /description: "B."
- /inputSchema/type: "object"
- /name: "b"`},
		"renamed": {[]string{old, strings.Replace(b, `"b"`, `"c"`, 1)}, "I", `
s: tool b: is now called c
- /name: "b"
+ /name: "c"`},
		"swapped": {[]string{strings.Replace(b, `"b"`, `"a"`, 1), `{"name":"b"}`}, "I", `
s: tool a: is now what another was: b` + strings.TrimSuffix(wholeDiff, "\n") + `
s: tool b: the description is changed
- B.
s: tool b: the input schema is changed
- /inputSchema/type: "object"`},
		"instructions": {[]string{old, b}, "J\nK", `
s: the instructions are changed
- I
+ J
+ K`},
		"no instructions": {[]string{old, b}, "", `
s: the instructions are changed
- I`},
	} {
		locked := lock.File{Servers: map[string]lock.Server{"s": serverOf(t, "I", old, b)}}
		found := lock.File{Servers: map[string]lock.Server{"s": serverOf(t, test.instructions, test.tools...)}}
		if diff := cmp.Diff(test.want, inWords(lock.Compare(locked, found))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
		if (string(locked.Text()) == string(found.Text())) != (test.want == "") {
			t.Errorf("%s: the files are %s\nand %s", what, locked.Text(), found.Text())
		}
	}
}

// wholeDiff is the difference between old and b.
const wholeDiff = `
- /_meta/k: null
- /annotations/readOnlyHint: true
- /authorization/required: true
- /description: "One.\nTwo.\nThree."
- /inputSchema/properties/a~1b~0: {}
- /inputSchema/properties/n/maximum: 1
- /inputSchema/required: ["n","m"]
+ /description: "B."
- /inputSchema/x-authzen-mapping/evaluation/action/name: "read"
- /outputSchema/type: "object"
- /title: "T"
`

func inWords(changes []lock.Change) string {
	var text strings.Builder
	for _, c := range changes {
		text.WriteString("\n" + c.Title())
		for _, line := range c.Lines() {
			text.WriteString("\n" + line)
		}
	}
	return text.String()
}

func TestServersComeAndGo(t *testing.T) {
	a, b := serverOf(t, "", `{"name":"x"}`), serverOf(t, "")
	locked, found := lock.File{Servers: map[string]lock.Server{"a": a}}, lock.File{Servers: map[string]lock.Server{"b": b}}
	if got, want := inWords(lock.Compare(locked, found)), "\na: the server is gone\na: tool x: is gone\n- /name: \"x\"\nb: the server is new"; got != want {
		t.Errorf("got %s", got)
	}
}

// The lines of a text that is as long as a server likes are found in time, if not as few as can be.
func TestALongTextIsCompared(t *testing.T) {
	long := func(from int) string {
		var lines []string
		for n := range 30_000 {
			lines = append(lines, fmt.Sprint(from+n*2))
		}
		return strings.Join(lines, "\n")
	}
	locked, found := lock.Server{Instructions: "a\n" + long(0) + "\nz"}, lock.Server{Instructions: "a\n" + long(1) + "\nz"}
	changes := lock.CompareServer("s", locked, found)
	if lines := changes[0].Lines(); len(lines) != 60_000 || lines[0] != "- 0" || lines[30_000] != "+ 1" {
		t.Errorf("%d lines", len(lines))
	}
}

// Each change is visible in the words, whatever a server does to have two definitions look alike.
func TestNoChangeLooksLikeNone(t *testing.T) {
	for what, test := range map[string]struct{ locked, found, want string }{
		"an array that is an object": {`"inputSchema":{"anyOf":[{"type":"null"},{"const":[]}]}`, `"inputSchema":{"anyOf":{"0":{"type":"null"},"1":{"const":[]}}}`,
			`- /inputSchema/anyOf/0/type: "null"|- /inputSchema/anyOf/1/const: []|+ /inputSchema/anyOf: {"0":{"type":"null"},"1":{"const":[]}}`},
		"what cannot be seen": {`"description":"a\u200b"`, `"description":"a\\u200b"`, `- a\u200b|+ "a\\u200b"`},
		"quotes":              {`"description":"\"a\\\\\""`, `"description":"a\\"`, `- "\"a\\\\\""|+ "a\\"`},
		"a line feed":         {`"x":1`, `"x: 1\n/y":1`, `- /x: 1|+ /x: 1\u000a~1y: 1`},
		"no text":             {`"description":"/description: 7"`, `"description":7`, `- "/description: 7"|+ /description: 7`},
	} {
		locked, found := serverOf(t, "", `{"name":"a",`+test.locked+`}`), serverOf(t, "", `{"name":"a",`+test.found+`}`)
		changes := lock.CompareServer("s", locked, found)
		if len(changes) != 1 {
			t.Fatalf("%s: %v", what, changes)
		}
		if got := strings.Join(changes[0].Lines(), "|"); got != test.want {
			t.Errorf("%s: got %s, want %s", what, got, test.want)
		}
	}
}

// A title says whose name it is about, and a name says nothing in its place.
func TestNamesInTitles(t *testing.T) {
	for name, want := range map[string]string{
		"get_v1.2/a-b":      `s: tool get_v1.2/a-b: is new`,
		"g\u0435t":          `s: tool "g\u0435t": is new`,
		"get: is gone":      `s: tool "get: is gone": is new`,
		"a\n\"\u202e\u3164": `s: tool "a\n\"\u202e\u3164": is new`,
	} {
		definition, err := json.Marshal(map[string]string{"name": name})
		must(t, err)
		changes := lock.CompareServer("s", serverOf(t, ""), serverOf(t, "", string(definition)))
		if len(changes) != 1 || changes[0].Title() != want {
			t.Errorf("%q: got %v, want %s", name, changes, want)
		}
	}
	renamed := lock.CompareServer("s", serverOf(t, "", `{"name":"get"}`), serverOf(t, "", `{"name":"g\u0435t"}`))
	if want := `s: tool get: is now called "g\u0435t"`; len(renamed) != 1 || renamed[0].Title() != want {
		t.Errorf("got %v, want %s", renamed, want)
	}
}
