package pep

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"policy-service/conformance/internal/casetest"
)

// Whatever is offered, answered, sent and expected is used by a case: what is not would be believed to be tested.
func TestEverythingIsUsed(t *testing.T) {
	t.Parallel()
	all, err := load()
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{"tool get_local_weather": true, "token good": true, "reply permit": true}
	for _, c := range all {
		for _, s := range c.Steps {
			for _, what := range []string{"tool " + s.Call, "request " + s.Ask, "token " + s.Token, "reply " + s.PDP} {
				used[what] = true
			}
			for want := range strings.SplitSeq(s.Want, " or ") {
				used["outcome "+want] = true
			}
		}
	}
	must := func(kind, name string) {
		if !used[kind+" "+name] {
			t.Errorf("no case uses the %s %s", kind, name)
		}
	}
	tools, err := parse([]byte(mustOffer(t).Tools))
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range tools.([]any) {
		must("tool", member(tool, "name").(string))
	}
	requests, err := calls()
	if err != nil {
		t.Fatal(err)
	}
	for name := range requests {
		must("request", name)
	}
	for name := range (caller{now: never}).kinds() {
		must("token", name)
	}
	for name := range replies() {
		must("reply", name)
	}
	for name := range outcomes {
		must("outcome", name)
	}
}

func mustOffer(t *testing.T) offered {
	t.Helper()
	o, err := offers()
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// What YAML could take for something else is the text that it is.
func TestNamesAreTexts(t *testing.T) {
	t.Parallel()
	all, err := load()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"null", "true", "none"} {
		n := slices.IndexFunc(all, func(c Case) bool { return c.ID == "pdp-"+name })
		if n < 0 || all[n].Steps[0].PDP != name {
			t.Errorf("pdp-%s has another PDP", name)
		}
	}
}

// The page shows a case that is asked as it stands there, and names every key and every outcome.
func TestPage(t *testing.T) {
	t.Parallel()
	all, err := load()
	if err != nil {
		t.Fatal(err)
	}
	names := slices.AppendSeq(casetest.Keys(reflect.TypeFor[caseEntry]()), maps.Keys(outcomes))
	expand := func(shown *yaml.Node) ([]Case, error) { return expand(shown, "coaz") }
	casetest.Page(t, "README.md", all, expand, names...)
}
