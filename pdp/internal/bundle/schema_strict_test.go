package bundle_test

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/x/exp/ast"
	"github.com/cedar-policy/cedar-go/x/exp/schema"
	"github.com/cedar-policy/cedar-go/x/exp/schema/validate"
	"policy-service/pdp"
	"policy-service/pdp/internal/bundle"
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
		files := os.DirFS("../../../policies/" + strings.TrimSuffix(file, "/schema.cedarschema"))
		must(t, fs.WalkDir(files, ".", func(name string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(name, ".cedar") {
				return err
			}
			text, err := fs.ReadFile(files, name)
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

// TestOneMistakeIsToldOnce: a mistake is no reason to tell of others that are none.
func TestOneMistakeIsToldOnce(t *testing.T) {
	t.Parallel()
	const schema = `entity User = {level: Long, name?: String, amount: decimal, since: datetime}; entity Doc; action read appliesTo {principal: [User], resource: [Doc], context: {amount: decimal}};`
	const head = "permit (principal is User, action == Action::\"read\", resource is Doc)\n"
	for conditions, want := range map[string]string{
		`when { context.amount > decimal("3.5") };`:                                                      "a.cedar:2:8 a decimal is compared with >; use .greaterThan(…)",
		`when { decimal("3.5") <= context.amount };`:                                                     "a.cedar:2:8 a decimal is compared with <=; use .lessThanOrEqual(…)",
		`when { principal.level in resource };`:                                                          "a.cedar:2:8 unexpected type: expected an entity but saw Long",
		`when { principal in principal.level };`:                                                         "a.cedar:2:8 unexpected type: expected an entity, or a set of entities but saw Long",
		`when { principal.level.contains(1) };`:                                                          "a.cedar:2:8 unexpected type: expected a set but saw Long",
		`when { principal.level.x == 1 };`:                                                               "a.cedar:2:8 unexpected type: expected an entity, or a record but saw Long",
		`when { context.amount > 3 };`:                                                                   "a.cedar:2:8 a decimal is compared with >; use .greaterThan(decimal(\"3.0\"))",
		`when { context.amount > -3 };`:                                                                  "a.cedar:2:8 a decimal is compared with >; use .greaterThan(…)",
		`when { context.amount < principal.since };`:                                                     "a.cedar:2:8 a decimal is compared with <; use .lessThan(…)",
		`when { context.amount + 1 > 3 };`:                                                               "a.cedar:2:8 unexpected type: expected Long but saw decimal",
		`when { 3 > 1 - context.amount };`:                                                               "a.cedar:2:8 unexpected type: expected Long but saw decimal",
		`when { context.amount > principal.amount && principal.amount < decimal("1.0") };`:               "a.cedar:2:8 a decimal is compared with >; use .greaterThan(…)\na.cedar:2:45 a decimal is compared with <; use .lessThan(…)",
		"when { principal has name && principal.level == \"x\" &&\nprincipal.name like \"a*\" };":        "a.cedar:2:30 the types Long and String are not compatible",
		"when { principal.level == \"x\" && principal has name }\nwhen { principal.name like \"a*\" };":  "a.cedar:2:8 the types Long and String are not compatible",
		"when { principal.level == \"x\" }\nwhen { principal.name like \"a*\" };":                        "a.cedar:2:8 the types Long and String are not compatible\na.cedar:3:18 it reads principal.name without has",
		"when { principal.name like \"a*\" } when { principal has name && principal.name like \"b*\" };": "a.cedar:2:18 it reads principal.name without has",
	} {
		_, problems := pdp.Load(pdp.FS(fstest.MapFS{"s.cedarschema": {Data: []byte(schema)}, "a.cedar": {Data: []byte(head + conditions)}}))
		var got []string
		for _, p := range problems {
			if p.Severity == pdp.SeverityError {
				_, message, _ := strings.Cut(p.Message, "does not fit the schema: ")
				got = append(got, fmt.Sprintf("%s:%d:%d %s; %s", p.File, p.Line, p.Column, message, p.Try))
			}
		}
		lines := strings.Split(want, "\n")
		fits := len(got) == len(lines)
		for n := range min(len(got), len(lines)) {
			fits = fits && strings.HasPrefix(got[n], lines[n])
		}
		if !fits {
			t.Errorf("%s:\ngot  %s\nwant %s", conditions, strings.Join(got, "\n     "), want)
		}
	}
}

// cedar-go reads a call with any number of arguments, and refuses it only where it is evaluated. So a policy with such a call
// does not load, for each function and method that cedar-go knows.
func TestCallsHaveTheArgumentsThatCedarTakes(t *testing.T) {
	t.Parallel()
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/cedar-policy/cedar-go").Output()
	must(t, err)
	source, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "internal", "extensions", "extensions.go"))
	must(t, err)
	known := regexp.MustCompile(`"(\w+)":\s+\{Args: (\d), IsMethod: (true|false)\}`).FindAllStringSubmatch(string(source), -1)
	if len(known) < 20 {
		t.Fatalf("cedar-go has %q", known)
	}
	for _, call := range known {
		takes, err := strconv.Atoi(call[2])
		must(t, err)
		name := call[1]
		if call[3] == "true" {
			name, takes = "context.x."+name, takes-1
		}
		for n := range takes + 2 {
			var problems pdp.Problems
			text := "permit(principal, action, resource) when { " + name + "(" + strings.Join(slices.Repeat([]string{"context.x"}, n), ", ") + ") };"
			bundle.ParsePolicies("p.cedar", bundle.UsageOf("default"), []byte(text), &problems)
			if want := n != takes; want != (len(problems) == 1) || want && (problems[0].Code != "policy_call" || !strings.Contains(problems[0].Message, call[1]) || !strings.Contains(problems[0].Try, call[1]+"(")) {
				t.Errorf("%s: %+v", text, problems)
			}
		}
	}
}
