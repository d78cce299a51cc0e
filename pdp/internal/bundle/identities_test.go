package bundle_test

import (
	"fmt"
	"testing"

	"github.com/cedar-policy/cedar-go/types"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/internal/bundle"
)

// A person with more names than a search comes by counts as everybody else: such a person approves nothing, and nobody
// approves a request of theirs. With fewer names the same person is told apart.
func TestAPersonWithTooManyNamesIsVague(t *testing.T) {
	t.Parallel()
	ring := func(n int) string {
		return manyEntities(n, func(i int) string {
			return entityOf("n", fmt.Sprint(i), fmt.Sprintf(`"identities":[{"__entity":{"type":"n","id":"%d"}}]`, (i+1)%n))
		})
	}
	oneID := func(n int) string {
		return manyEntities(n, func(i int) string { return entityOf(fmt.Sprintf("n%d", i), "x", `"identities":["1"]`) })
	}
	for _, c := range []struct {
		name, entities string
		vague          bool
	}{
		{"a ring", ring(200), false},
		{"a long ring", ring(1_100), true},
		{"one id", oneID(100), false},
		{"one id for many", oneID(1_100), true},
	} {
		b, problems := pdp.Load(pdp.FS(tenantFiles("entities/e.json", c.entities)))
		if b == nil {
			t.Fatal(problems)
		}
		store := b.Views["t"].Store
		for _, ask := range []func(*bundle.People) bool{
			func(p *bundle.People) bool {
				p.AddRef(&b.Config, evaluation.Ref{Type: "n", ID: "1"})
				return p.Overlaps(store, types.NewEntityUID("user", "other"))
			},
			func(p *bundle.People) bool {
				p.Add(types.NewEntityUID("user", "other"))
				return p.Overlaps(store, types.NewEntityUID("n", "1"))
			},
		} {
			if got := ask(&bundle.People{Store: store}); got != c.vague {
				t.Errorf("%s: %v", c.name, got)
			}
		}
		same := bundle.People{Store: store}
		same.Add(types.NewEntityUID("n", "1"))
		if !same.Overlaps(store, types.NewEntityUID("n", "1")) {
			t.Errorf("%s: nobody is the same person", c.name)
		}
	}
}

// Each of the persons that a request is of may have as many names, however a request names them.
func TestPersonsDoNotShareTheStepsOfASearch(t *testing.T) {
	t.Parallel()
	const n = 200 // see above: a search of one such ring takes more than half of the steps
	b, problems := pdp.Load(pdp.FS(tenantFiles("entities/e.json", manyEntities(2*n, func(i int) string {
		return entityOf("n", fmt.Sprint(i), fmt.Sprintf(`"identities":[{"__entity":{"type":"n","id":"%d"}}]`, i/n*n+(i+1)%n))
	}))))
	if b == nil {
		t.Fatal(problems)
	}
	store := b.Views["t"].Store
	other := types.NewEntityUID("user", "other")
	for name, add := range map[string]func(*bundle.People){
		"a reference": func(p *bundle.People) { p.AddRef(&b.Config, evaluation.Ref{Type: "n", ID: "300"}) },
		"an entity":   func(p *bundle.People) { p.Add(types.NewEntityUID("n", "300")) },
		"an id":       func(p *bundle.People) { p.AddID("300") },
	} {
		p := bundle.People{Store: store}
		p.AddRef(&b.Config, evaluation.Ref{Type: "n", ID: "1"})
		add(&p)
		if p.Overlaps(store, other) {
			t.Errorf("%s: everybody is one of them", name)
		}
		for _, id := range []types.String{"2", "301"} {
			if !p.Overlaps(store, types.NewEntityUID("n", id)) {
				t.Errorf("%s: %s is not one of them", name, id)
			}
		}
	}
}
