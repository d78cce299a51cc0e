package pdp

import (
	"context"
	"slices"
	"strings"
	"testing"

	"policy-service/pdp/internal/bundle"
	"policy-service/pdp/pdptest/night"
)

// TestCheckFindsEveryOverlap asks generated bundles: where one request satisfies
// both of two permits, and another the one alone that has no obligation, Check has
// warned of it.
func TestCheckFindsEveryOverlap(t *testing.T) {
	t.Parallel()
	found := 0
	eachSeed(t, 150, func(t *testing.T, g *generator) {
		g.prefixed = g.seed%3 == 1
		o := g.obliged(14)
		b, problems := Check(o.source(), propertyTime)
		if b == nil {
			t.Fatal(problems.Error())
		}
		warned := func(free, obliging string) bool {
			names := func(p Problem, id string) bool {
				return strings.Contains(p.Message, bundle.Quote(id)+" ") || strings.Contains(p.Message, " more ")
			}
			return slices.ContainsFunc(problems, func(p Problem) bool {
				return p.Code == "obligation_overlap" && names(p, free) && names(p, obliging)
			})
		}
		together, alone := map[[2]string]asked{}, map[[2]string]asked{}
		for range 60 {
			pairsOfPermits(t, b, g.question(o.world), together, alone)
		}
		for pair, a := range together {
			if other, ok := alone[pair]; ok {
				if found++; !warned(pair[0], pair[1]) {
					t.Fatalf("seed %d: %s gets round %s, and there is no warning\n%s%s%s", g.seed, pair[0], pair[1], o, a, other)
				}
			}
		}
	})
	if found < night.Cases(50) && !fewSeeds() {
		t.Errorf("%d overlaps: the generator shows little", found)
	}
}

// pairsOfPermits notes which permits without obligations a request satisfies
// together with one that has some, and which without it.
func pairsOfPermits(t *testing.T, b *Bundle, a asked, together, alone map[[2]string]asked) {
	t.Helper()
	call := a.call(t)
	call.Explain = true
	d, err := decideBy(context.Background(), b, call)
	if err != nil {
		return
	}
	satisfied := map[string]bool{}
	for _, p := range d.Explain.Policies {
		satisfied[p.ID] = p.Verdict == "satisfied"
	}
	v := viewOf(b, call)
	for _, p := range v.Policies {
		for _, o := range v.Policies {
			if p.Forbids() || o.Forbids() || len(p.Obliges) > 0 || len(o.Obliges) == 0 || !satisfied[p.Id] {
				continue
			}
			if pair := [2]string{p.Id, o.Id}; satisfied[o.Id] {
				together[pair] = a
			} else {
				alone[pair] = a
			}
		}
	}
}
