package pdp

import (
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/x/exp/ast"
	"github.com/cedar-policy/cedar-go/x/exp/schema"
	"github.com/cedar-policy/cedar-go/x/exp/schema/validate"
)

// An author's other tools know nothing of what the PDP adds to a schema. So the policies of a
// bundle to start from fit its schema as both stand in their files, by Cedar's strict rules.
func TestBundlesFitTheirSchemasWithoutThePDP(t *testing.T) {
	schemas, err := fs.Glob(os.DirFS("../policies"), "*/schema.cedarschema")
	must(t, err)
	if len(schemas) < 2 {
		t.Fatalf("schemas: %v", schemas)
	}
	for _, file := range schemas {
		text, err := os.ReadFile("../policies/" + file)
		must(t, err)
		var s schema.Schema
		must(t, s.UnmarshalCedar(text))
		r, err := s.Resolve()
		must(t, err)
		validator, checked := validate.New(r, validate.WithStrict()), 0
		bundle := os.DirFS("../policies/" + strings.TrimSuffix(file, "/schema.cedarschema"))
		must(t, fs.WalkDir(bundle, ".", func(name string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(name, ".cedar") {
				return err
			}
			text, err := fs.ReadFile(bundle, name)
			must(t, err)
			policies, err := cedar.NewPolicyListFromBytes(name, text)
			must(t, err)
			for _, p := range policies {
				checked++
				if err := validator.Policy("", (*ast.Policy)(p.AST())); err != nil {
					t.Errorf("%s beside %s, line %d: %v", name, file, p.Position().Line, err)
				}
			}
			return nil
		}))
		if checked == 0 {
			t.Errorf("%s: no policy stands beside it", file)
		}
	}
}
