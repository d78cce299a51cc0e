package coaz_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"policy-service/evaluation"
	"policy-service/evaluation/coaz"
)

// TestFigures holds each figure of the framework and of the binding, the example of the older dialect, and each default
// mapping to the request that is printed there or follows from it, member for member.
func TestFigures(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/figures/*.txtar")
	if err != nil || len(files) < 24 {
		t.Fatalf("%d figures, %v", len(files), err)
	}
	binding := newBinding(t, coaz.Options{Inputs: []string{"request"}})
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			parts := map[string]string{}
			for _, f := range archive.Files {
				parts[strings.TrimSuffix(f.Name, ".json")] = string(f.Data)
			}
			op := operationOf(t, parts["operation"])
			questions, err := figureMapping(t, binding, parts, op.Method).Questions(op)
			if err != nil {
				t.Fatal(err)
			}
			if len(questions.Envelopes) != 1 || len(questions.Warnings) != 0 {
				t.Fatalf("%d envelopes, warnings %v", len(questions.Envelopes), questions.Warnings)
			}
			asked := questions.Envelopes[0]
			want, ok := parts[string(asked.API)]
			if !ok {
				t.Fatalf("asked by the API %s", asked.API)
			}
			if diff := cmp.Diff(anyOf(t, want), anyOf(t, string(asked.Body))); diff != "" {
				t.Errorf("the request is another than the printed one (-printed +ours):\n%s", diff)
			}
			for n, q := range questions.Requests {
				printed := anyOf(t, entryOf(t, want, asked.API, n)).(map[string]any)
				if context, _ := printed["context"].(map[string]any); len(context) == 0 {
					delete(printed, "context") // which is the same
				}
				if diff := cmp.Diff(any(printed), anyOf(t, string(jsonOf(t, q)))); diff != "" {
					t.Errorf("request %d (-printed +ours):\n%s", n, diff)
				}
			}
		})
	}
}

func figureMapping(t *testing.T, binding *coaz.Binding, parts map[string]string, method string) *coaz.Mapping {
	t.Helper()
	var mapping *coaz.Mapping
	var err error
	switch {
	case parts["mapping"] != "":
		mapping, err = binding.Compile(object(t, parts["mapping"]), coaz.AuthZEN)
	case parts["tool"] != "":
		mapping, err = binding.Parse(object(t, parts["tool"]))
	default:
		if mapping, _ = binding.Default(method); mapping == nil {
			mapping = binding.Forgotten(method)
		}
	}
	if err != nil || mapping == nil {
		t.Fatalf("no mapping: %v", err)
	}
	return mapping
}

// entryOf is the n-th request that a printed body asks for, with what it inherits.
func entryOf(t *testing.T, body string, api coaz.API, n int) string {
	t.Helper()
	if api == coaz.Evaluation {
		return body
	}
	var printed map[string]any
	if err := json.Unmarshal([]byte(body), &printed); err != nil {
		t.Fatal(err)
	}
	entry := printed["evaluations"].([]any)[n].(map[string]any)
	for name, v := range printed {
		if _, own := entry[name]; !own && name != "evaluations" {
			entry[name] = v
		}
	}
	return string(jsonOf(t, entry))
}

// TestFigureResolution holds the table of expressions and what they resolve to in the binding.
func TestFigureResolution(t *testing.T) {
	t.Parallel()
	op := operationOf(t, `{"method": "tools/call",
		"params": {"name": "get_customer", "arguments": {"id": "cust-12345", "case": "case-67890"}},
		"token": {"sub": "alice@example.com", "client_id": "http://agentprovider.com/agent-app-id"}}`)
	for _, row := range [][2]string{
		{"$params.name", "get_customer"},
		{"$params.arguments.id", "cust-12345"},
		{`$params.arguments["id"]`, "cust-12345"},
		{"$token.sub", "alice@example.com"},
		{"$token.?client_id", "http://agentprovider.com/agent-app-id"},
		{"customer", "customer"},
		{"$$50", "$50"},
	} {
		q, err := declare(t, newBinding(t, coaz.Options{}), contextOf(t, row[0])).Questions(op)
		if err != nil {
			t.Errorf("%s: %v", row[0], err)
			continue
		}
		if got, _ := q.Requests[0].Context.Get("x"); got.Text() != row[1] {
			t.Errorf("%s resolves to %q, printed is %q", row[0], got.Text(), row[1])
		}
	}
}

// TestFigureErrors holds the codes that are printed in the figures of refusals.
func TestFigureErrors(t *testing.T) {
	t.Parallel()
	m := declare(t, newBinding(t, coaz.Options{}), contextOf(t, "$params.arguments.region"))
	_, err := m.Questions(operationOf(t, `{"method": "tools/call", "params": {"arguments": {}}, "token": {"sub": "alice"}}`))
	wrong := mappingError(t, err)
	if got := wrong.Error(); wrong.Code() != -32602 || got != "COAZ mapping error: /evaluation/context/x: a member that is read is missing" {
		t.Errorf("%d %s", wrong.Code(), got)
	}
	for kind, codes := range map[coaz.Kind][2]int{
		coaz.MappingError: {-32602, -32602},
		coaz.Denied:       {-32001, -32401},
		coaz.Unreachable:  {-32603, -32603},
		coaz.Kind(99):     {-32603, -32603},
	} {
		if got := [2]int{kind.Code(coaz.AuthZEN), kind.Code(coaz.SEP)}; got != codes {
			t.Errorf("kind %d has the codes %v, not %v", kind, got, codes)
		}
	}
}

// What the tests of this package share.

// bindings are those that tests have made, by their options: one takes as long as thousands of questions.
var bindings sync.Map

func newBinding(t testing.TB, o coaz.Options) *coaz.Binding {
	t.Helper()
	key := fmt.Sprintf("%#v", o)
	if b, made := bindings.Load(key); made {
		return b.(*coaz.Binding)
	}
	b, err := coaz.New(o)
	if err != nil {
		t.Fatal(err)
	}
	bindings.Store(key, b)
	return b
}

// wide are limits that keep nothing out of a test: the package has its own.
func wide() evaluation.Limits {
	return evaluation.Limits{Body: 64 << 20, Depth: 200, Values: 1 << 22, Batch: 1 << 20}
}

func object(t testing.TB, text string) evaluation.Object {
	t.Helper()
	o, err := evaluation.ParseWithNulls([]byte(text), wide())
	if err != nil {
		t.Fatalf("%v in %.200s", err, text)
	}
	return o
}

// operationOf reads {"method", "params", "token", "inputs"}.
func operationOf(t testing.TB, text string) coaz.Operation {
	t.Helper()
	o := object(t, text)
	part := func(name string) evaluation.Object { v, _ := o.Get(name); return v.Object() }
	method, _ := o.Get("method")
	return coaz.Operation{Method: method.Text(), Params: part("params"), Token: part("token"), Inputs: part("inputs")}
}

// tool is the definition of a tool that declares a mapping of the binding's dialect.
func tool(t testing.TB, mapping string) evaluation.Object {
	t.Helper()
	return object(t, `{"name": "t", "inputSchema": {"type": "object", "x-authzen-mapping": `+mapping+`}}`)
}

func declare(t testing.TB, b *coaz.Binding, mapping string) *coaz.Mapping {
	t.Helper()
	m, err := b.Parse(tool(t, mapping))
	if err != nil || m == nil {
		t.Fatalf("%v in %.200s", err, mapping)
	}
	return m
}

// contextOf is a mapping in which the context has one member, x: a string.
func contextOf(t testing.TB, leaf string) string {
	t.Helper()
	return contextWith(string(jsonOf(t, leaf)))
}

// contextWith is a mapping in which the context has one member, x: some JSON.
func contextWith(text string) string {
	return `{"evaluation": {"action": {"name": "a"}, "resource": {"type": "t", "id": "i"}, "context": {"x": ` + text + `}}}`
}

func jsonOf(t testing.TB, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// anyOf reads JSON so that its numbers keep their text.
func anyOf(t testing.TB, text string) any {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return v
}

func mappingError(t testing.TB, err error) *coaz.Error {
	t.Helper()
	wrong, ok := err.(*coaz.Error)
	if !ok || wrong.Kind != coaz.MappingError || wrong.Detail == "" {
		t.Fatalf("%#v is no mapping error", err)
	}
	return wrong
}
