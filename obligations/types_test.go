package obligations_test

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"policy-service/evaluation"
	"policy-service/obligations"
	"policy-service/schemas"
)

// Every type has its document, every document its type, and a document says of
// which type it is.
func TestTypesAndDocuments(t *testing.T) {
	t.Parallel()
	files, err := os.ReadDir("../schemas/obligations")
	if err != nil {
		t.Fatal(err)
	}
	var documents []string
	for _, f := range files {
		documents = append(documents, strings.TrimSuffix(f.Name(), ".json"))
	}
	if slices.Sort(documents); !slices.Equal(obligations.Types(), documents) {
		t.Errorf("the types are %q, and schemas/obligations has %q", obligations.Types(), documents)
	}
	for _, name := range obligations.Types() {
		var doc struct {
			Schema string `json:"$schema"`
			Title  string
			Type   string
		}
		if err := json.Unmarshal(schemas.Obligation(name), &doc); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if doc.Schema != "https://json-schema.org/draft/2020-12/schema" || !strings.HasPrefix(doc.Title, name+": ") || doc.Type != "object" {
			t.Errorf("%s: its document is %+v", name, doc)
		}
	}
}

func TestRegistry(t *testing.T) {
	t.Parallel()
	names := obligations.Types()
	if !slices.IsSorted(names) || !slices.Equal(slices.Compact(slices.Clone(names)), names) {
		t.Errorf("%q are not in order, or not each once", names)
	}
	names[0] = "changed"
	if obligations.Types()[0] == "changed" {
		t.Error("the registry can be changed from outside")
	}
	for _, name := range obligations.Types() {
		typ, ok := obligations.Lookup(name)
		if !ok || typ.Name != name || typ.On == 0 || typ.On.With(true) == typ.On.With(false) && typ.On != obligations.OnBoth {
			t.Errorf("%s is found as %+v", name, typ)
		}
		one := name == "step-up" || name == obligations.ApprovalRequired || name == obligations.CapabilityTerms
		if (typ.Combine == obligations.One) != one {
			t.Errorf("%s combines as %d", name, typ.Combine)
		}
	}
	for _, name := range []string{"", "Log", "log ", "step_up", "approval-required"} {
		if typ, ok := obligations.Lookup(name); ok {
			t.Errorf("%q is found as %+v", name, typ)
		}
	}
}

// What is built in says nothing besides its type, which is its name; who changes
// it changes it for himself.
func TestBuiltin(t *testing.T) {
	t.Parallel()
	var names []string
	for _, d := range obligations.Builtin() {
		names = append(names, d.Name)
		if d.Type.Name != d.Name || d.On != d.Type.On || d.Properties.Len() != 0 {
			t.Errorf("%s is %+v", d.Name, d)
		}
		d.Properties = evaluation.Object{}.With("a", evaluation.Value{})
		d.Name = "changed"
	}
	if want := []string{"approval_required", "log"}; !slices.Equal(names, want) || obligations.Builtin()[0].Name != want[0] {
		t.Errorf("built in are %q, want %q", names, want)
	}
}
