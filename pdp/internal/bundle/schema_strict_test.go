package bundle_test

import (
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/x/exp/ast"
	"github.com/cedar-policy/cedar-go/x/exp/schema"
	"github.com/cedar-policy/cedar-go/x/exp/schema/validate"
	"policy-service/pdp"
)

// An author's other tools know nothing of what the PDP adds to a schema. So the policies of a
// bundle to start from fit its schema as both stand in their files, by Cedar's strict rules.
func TestBundlesFitTheirSchemasWithoutThePDP(t *testing.T) {
	t.Parallel()
	schemas, err := fs.Glob(os.DirFS("../../../policies"), "*/schema.cedarschema")
	must(t, err)
	if len(schemas) < 2 {
		t.Fatalf("schemas: %v", schemas)
	}
	for _, file := range schemas {
		text, err := os.ReadFile("../../../policies/" + file)
		must(t, err)
		var s schema.Schema
		must(t, s.UnmarshalCedar(text))
		r, err := s.Resolve()
		must(t, err)
		validator, checked := validate.New(r, validate.WithStrict()), 0
		bundle := os.DirFS("../../../policies/" + strings.TrimSuffix(file, "/schema.cedarschema"))
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

// Where a schema declares the first members of pdp alone, a policy that reads another says what to add to the schema.
func TestFirstPDPSaysWhatToAdd(t *testing.T) {
	t.Parallel()
	_, problems := pdp.Load(pdp.FS(fstest.MapFS{
		"schema.cedarschema": {Data: []byte("entity user; action a, b appliesTo { principal: user, resource: user, context: { pdp: { now: datetime, tenant: String, caller: String, approved: Bool } } }; action c appliesTo { principal: user, resource: user };")},
		"p.cedar": {Data: []byte("permit (principal, action == Action::\"c\", resource) when { context.pdp.resource.id like \"x:*\" };\n" +
			"permit (principal, action == Action::\"a\", resource) when { context.pdp.capability.held };\n" +
			"permit (principal, action == Action::\"b\", resource) when { context.other == 1 };\n")},
	}))
	var got []string
	for _, p := range problems {
		if p.Severity == pdp.SeverityError {
			got = append(got, fmt.Sprintf("%s:%d %t", p.File, p.Line, strings.Contains(p.Try, "add subject: {type: String, id: String}")))
		}
	}
	if want := []string{"p.cedar:2 true", "p.cedar:3 false"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v\n%v", got, want, problems)
	}
}
