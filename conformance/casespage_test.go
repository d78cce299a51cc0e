package conformance

import (
	"reflect"
	"slices"
	"testing"

	"go.yaml.in/yaml/v3"

	"policy-service/conformance/internal/casefile"
	"policy-service/conformance/internal/casetest"
)

// The page of cases shows some that are asked as they stand there, and names every key.
func TestCasesPage(t *testing.T) {
	t.Parallel()
	all, err := load()
	if err != nil {
		t.Fatal(err)
	}
	expand := func(shown *yaml.Node) ([]Case, error) {
		var e caseEntry
		if err := casefile.Strictly(shown, &e); err != nil {
			return nil, err
		}
		plan := "" // the page does not say it
		if n := slices.IndexFunc(all, func(c Case) bool { return c.ID == e.ID }); n >= 0 {
			plan = all[n].Plan
		}
		return e.expand(plan)
	}
	casetest.Page(t, "cases/README.md", all, expand, casetest.Keys(reflect.TypeFor[caseEntry]())...)
}
