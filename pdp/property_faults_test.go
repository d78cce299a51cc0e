package pdp

import (
	"context"
	"iter"
	"slices"
	"strings"
	"testing"

	"policy-service/pdp/internal/bundle"
	"policy-service/pdp/internal/engine"
)

// fault is a mistake that the index could have, made in the data it works on.
type fault struct {
	name string
	// bundle damages a loaded bundle, lineages what a request is looked up by.
	bundle   func(*Bundle)
	lineages func(*engine.Question, *bundle.Lineages)
}

var faults = []fault{
	{name: "what is filed under anything is not looked up", bundle: eachIndex(func(x bundle.Index) {
		for _, byPrincipal := range x {
			delete(byPrincipal, bundle.IndexKey{})
		}
	})},
	{name: "what is filed under a type is not looked up", bundle: eachIndex(func(x bundle.Index) {
		for _, byPrincipal := range x {
			for _, byResource := range byPrincipal {
				dropTypes(byResource)
			}
		}
	})},
	{name: "the last policy of every list is lost", bundle: eachIndex(func(x bundle.Index) {
		for _, byPrincipal := range x {
			for _, byResource := range byPrincipal {
				for key, numbers := range byResource {
					byResource[key] = numbers[:len(numbers)-1]
				}
			}
		}
	})},
	{name: "the numbers of the policies are one off", bundle: eachView(func(v *bundle.View) {
		v.Index = bundle.NewIndex(append(v.Policies[1:len(v.Policies):len(v.Policies)], v.Policies[0]))
	})},
	{name: "a policy found twice is given twice", bundle: eachView(func(v *bundle.View) {
		v.Policies = append(slices.Clone(v.Policies), v.Policies...)
		slices.SortFunc(v.Policies, func(a, b *bundle.Policy) int { return strings.Compare(a.Id, b.Id) })
		v.Index = bundle.NewIndex(v.Policies)
	})},
	{name: "only the first entity of a set is filed", bundle: filedAs(func(f *bundle.Facts) {
		eachTest(f, func(t *bundle.ScopeTest) { t.Uids = t.Uids[:min(1, len(t.Uids)):len(t.Uids)] })
	})},
	{name: "an empty set is no test", bundle: filedAndReadAs(func(f *bundle.Facts) {
		empty := func(t bundle.ScopeTest) bool { return t.Uids != nil && len(t.Uids) == 0 }
		f.Scope, f.Leading = slices.DeleteFunc(f.Scope, empty), slices.DeleteFunc(f.Leading, empty)
	})},
	{name: "in is read as ==", bundle: filedAndReadAs(func(f *bundle.Facts) {
		eachTest(f, func(t *bundle.ScopeTest) { t.Eq = t.Eq || len(t.Uids) == 1 })
	})},
	{name: "== is read as in", bundle: filedAndReadAs(func(f *bundle.Facts) {
		eachTest(f, func(t *bundle.ScopeTest) { t.Eq = false })
	})},
	{name: "is … in is read as in", bundle: filedAndReadAs(func(f *bundle.Facts) {
		eachTest(f, func(t *bundle.ScopeTest) {
			if len(t.Uids) > 0 {
				t.Is = ""
			}
		})
	})},
	{name: "a prefix is read as a longer one", bundle: filedAndReadAs(func(f *bundle.Facts) {
		eachTest(f, func(t *bundle.ScopeTest) {
			if t.Prefix != "" {
				t.Prefix += "1"
			}
		})
	})},
	{name: "a prefix is filed as another", bundle: filedAs(func(f *bundle.Facts) {
		eachTest(f, func(t *bundle.ScopeTest) {
			if strings.Contains(t.Prefix, ":") {
				t.Prefix = "c" + t.Prefix
			}
		})
	})},
	{name: "a prefix without a colon is filed as if it ended there", bundle: filedAs(func(f *bundle.Facts) {
		eachTest(f, func(t *bundle.ScopeTest) {
			if t.Prefix != "" && !strings.Contains(t.Prefix, ":") {
				t.Prefix += ":"
			}
		})
	})},
	{name: "tests are hoisted past a clause that errs", bundle: filedAndReadAs(func(f *bundle.Facts) {
		f.Leading = testsAmong(f.Conjuncts, func(c bundle.Conjunct) bool { return !c.Unless })
	})},
	{name: "unless is hoisted as if it were when", bundle: filedAndReadAs(func(f *bundle.Facts) {
		if len(f.Conjuncts) > 0 && f.Conjuncts[0].Unless {
			f.Leading = testsAmong(f.Conjuncts[:1], func(bundle.Conjunct) bool { return true })
		}
	})},
	{name: "leading tests are filed by and then forgotten", bundle: func(b *Bundle) {
		for p := range everyPolicy(b) {
			p.Facts.Leading = nil
		}
	}},
	{name: "ancestors are not looked up", lineages: func(_ *engine.Question, ls *bundle.Lineages) {
		for n := range ls {
			ls[n].Up, ls[n].Set = nil, nil
		}
	}},
	{name: "ancestors end at the parents", lineages: func(q *engine.Question, ls *bundle.Lineages) {
		for n := range ls {
			e, _ := q.Entities.Get(ls[n].Uid)
			ls[n].Set = nil
			ls[n].Up = slices.Collect(e.Parents.All())
		}
	}},
	{name: "stored parents count instead of those in force", lineages: func(q *engine.Question, ls *bundle.Lineages) {
		for n := range ls {
			ls[n] = bundle.LineageOf(ls[n].Uid, q.Entities.Store)
		}
	}},
}

// TestPropertyIndexFaults plants faults in the index, one at a time. A corpus
// that one of them passed through would not hold the promise of the index.
func TestPropertyIndexFaults(t *testing.T) {
	t.Parallel()
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			for seed := range uint64(100) { // fewer than the corpus of TestPropertyIndexChangesNothing
				g := newGenerator(seed)
				g.prefixed = seed%2 == 1
				if n := f.found(t, g); n > 0 {
					t.Logf("found by seed %d, request %d", seed, n)
					return
				}
			}
			t.Error("no generated request shows the fault")
		})
	}
}

// found returns the number of the first request that shows the fault.
func (f *fault) found(t *testing.T, g *generator) int {
	w := g.world(24)
	good, bad := w.load(t).WithoutIndex(), w.load(t)
	if f.bundle != nil {
		f.bundle(bad)
	}
	for n := range 30 {
		call := g.question(w).call(t)
		want, err1 := decideBy(context.Background(), good, call)
		v := viewOf(bad, call)
		q, err2 := questionOf(bad, v, call)
		if err1 != nil || err2 != nil || q.Reason != "" {
			continue
		}
		ls := lineagesOf(q)
		if f.lineages != nil {
			f.lineages(q, ls)
		}
		got := want
		got.Allow, got.Reason, got.Determining, got.Errors = false, "", nil, nil
		q.Up = *ls
		_ = engine.Authorize(context.Background(), bad, v, q, &got)
		if outcome(got) != outcome(want) {
			return n + 1
		}
	}
	return 0
}

// TestPropertyNoFault shows that what TestPropertyIndexFaults compares is equal
// where no fault is planted.
func TestPropertyNoFault(t *testing.T) {
	t.Parallel()
	eachSeed(t, 20, func(t *testing.T, g *generator) {
		g.prefixed = g.seed%2 == 1
		if n := (&fault{}).found(t, g); n > 0 {
			t.Errorf("seed %d, request %d: no fault was planted, and one was found", g.seed, n)
		}
	})
}

func eachView(do func(*bundle.View)) func(*Bundle) {
	return func(b *Bundle) {
		for _, v := range b.Views {
			do(v)
		}
	}
}

func eachIndex(do func(bundle.Index)) func(*Bundle) {
	return eachView(func(v *bundle.View) { do(v.Index) })
}

// filedAs files policies as if their facts were others.
func filedAs(change func(*bundle.Facts)) func(*Bundle) {
	return eachView(func(v *bundle.View) {
		changed := make([]*bundle.Policy, len(v.Policies))
		for n, p := range v.Policies {
			q := *p
			q.Facts.Scope, q.Facts.Leading = slices.Clone(p.Facts.Scope), slices.Clone(p.Facts.Leading)
			change(&q.Facts)
			changed[n] = &q
		}
		v.Index = bundle.NewIndex(changed)
	})
}

// filedAndReadAs changes the facts of policies for every use of them.
func filedAndReadAs(change func(*bundle.Facts)) func(*Bundle) {
	return func(b *Bundle) {
		for p := range everyPolicy(b) {
			change(&p.Facts)
		}
		eachView(func(v *bundle.View) { v.Index = bundle.NewIndex(v.Policies) })(b)
	}
}

// everyPolicy yields each policy once, although every tenant's view has the root's.
func everyPolicy(b *Bundle) iter.Seq[*bundle.Policy] {
	return func(yield func(*bundle.Policy) bool) {
		seen := map[*bundle.Policy]bool{}
		for _, v := range b.Views {
			for _, p := range v.Policies {
				if !seen[p] && !yield(p) {
					return
				}
				seen[p] = true
			}
		}
	}
}

func eachTest(f *bundle.Facts, do func(*bundle.ScopeTest)) {
	for _, tests := range [][]bundle.ScopeTest{f.Scope, f.Leading} {
		for n := range tests {
			do(&tests[n])
		}
	}
}

func testsAmong(conjuncts []bundle.Conjunct, that func(bundle.Conjunct) bool) []bundle.ScopeTest {
	var tests []bundle.ScopeTest
	for _, c := range conjuncts {
		if t, ok := bundle.TestOfNode(c.Body); ok && that(c) {
			tests = append(tests, t)
		}
	}
	return tests
}

func dropTypes(numbers map[bundle.IndexKey][]int32) {
	for key := range numbers {
		if key.Form == bundle.KeyType {
			delete(numbers, key)
		}
	}
}
