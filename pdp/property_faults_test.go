package pdp

import (
	"context"
	"slices"
	"strings"
	"testing"
)

// fault is a mistake that the index could have, made in the data it works on.
type fault struct {
	name string
	// bundle damages a loaded bundle, lineages what a request is looked up by.
	bundle   func(*Bundle)
	lineages func(*question, *lineages)
}

var faults = []fault{
	{name: "what is filed under anything is not looked up", bundle: eachIndex(func(x index) {
		for _, byPrincipal := range x {
			delete(byPrincipal, indexKey{})
		}
	})},
	{name: "what is filed under a type is not looked up", bundle: eachIndex(func(x index) {
		for _, byPrincipal := range x {
			for _, byResource := range byPrincipal {
				dropTypes(byResource)
			}
		}
	})},
	{name: "the last policy of every list is lost", bundle: eachIndex(func(x index) {
		for _, byPrincipal := range x {
			for _, byResource := range byPrincipal {
				for key, numbers := range byResource {
					byResource[key] = numbers[:len(numbers)-1]
				}
			}
		}
	})},
	{name: "the numbers of the policies are one off", bundle: eachView(func(v *view) {
		v.index = newIndex(append(v.policies[1:len(v.policies):len(v.policies)], v.policies[0]))
	})},
	{name: "a policy found twice is given twice", bundle: eachView(func(v *view) {
		v.policies = append(slices.Clone(v.policies), v.policies...)
		slices.SortFunc(v.policies, func(a, b *policy) int { return strings.Compare(a.id, b.id) })
		v.index = newIndex(v.policies)
	})},
	{name: "only the first entity of a set is filed", bundle: filedAs(func(f *facts) {
		eachTest(f, func(t *scopeTest) { t.uids = t.uids[:min(1, len(t.uids)):len(t.uids)] })
	})},
	{name: "an empty set is no test", bundle: filedAndReadAs(func(f *facts) {
		empty := func(t scopeTest) bool { return t.uids != nil && len(t.uids) == 0 }
		f.scope, f.leading = slices.DeleteFunc(f.scope, empty), slices.DeleteFunc(f.leading, empty)
	})},
	{name: "in is read as ==", bundle: filedAndReadAs(func(f *facts) {
		eachTest(f, func(t *scopeTest) { t.eq = t.eq || len(t.uids) == 1 })
	})},
	{name: "== is read as in", bundle: filedAndReadAs(func(f *facts) {
		eachTest(f, func(t *scopeTest) { t.eq = false })
	})},
	{name: "is … in is read as in", bundle: filedAndReadAs(func(f *facts) {
		eachTest(f, func(t *scopeTest) {
			if len(t.uids) > 0 {
				t.is = ""
			}
		})
	})},
	{name: "tests are hoisted past a clause that errs", bundle: filedAndReadAs(func(f *facts) {
		f.leading = testsAmong(f.conjuncts, func(c conjunct) bool { return !c.unless })
	})},
	{name: "unless is hoisted as if it were when", bundle: filedAndReadAs(func(f *facts) {
		if len(f.conjuncts) > 0 && f.conjuncts[0].unless {
			f.leading = testsAmong(f.conjuncts[:1], func(conjunct) bool { return true })
		}
	})},
	{name: "leading tests are filed by and then forgotten", bundle: func(b *Bundle) {
		for p := range b.everyPolicy {
			p.facts.leading = nil
		}
	}},
	{name: "ancestors are not looked up", lineages: func(_ *question, ls *lineages) {
		for n := range ls {
			ls[n].up, ls[n].set = nil, nil
		}
	}},
	{name: "ancestors end at the parents", lineages: func(q *question, ls *lineages) {
		for n := range ls {
			e, _ := q.entities.Get(ls[n].uid)
			ls[n].set = nil
			ls[n].up = slices.Collect(e.Parents.All())
		}
	}},
	{name: "stored parents count instead of those in force", lineages: func(q *question, ls *lineages) {
		for n := range ls {
			ls[n] = lineageOf(ls[n].uid, q.entities.store)
		}
	}},
}

// TestPropertyIndexFaults plants faults in the index, one at a time. A corpus
// that one of them passed through would not hold the promise of the index.
func TestPropertyIndexFaults(t *testing.T) {
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			for seed := range uint64(100) { // fewer than the corpus of TestPropertyIndexChangesNothing
				if n := f.found(t, newGenerator(seed)); n > 0 {
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
		v := bad.viewOf(call)
		q, err2 := questionOf(bad, v, call)
		if err1 != nil || err2 != nil || q.reason != "" {
			continue
		}
		ls := q.lineages()
		if f.lineages != nil {
			f.lineages(q, ls)
		}
		got := want
		got.Allow, got.Reason, got.Determining, got.Errors = false, "", nil, nil
		q.up = *ls
		_ = authorize(context.Background(), bad, v, q, &got)
		if outcome(got) != outcome(want) {
			return n + 1
		}
	}
	return 0
}

// TestPropertyNoFault shows that what TestPropertyIndexFaults compares is equal
// where no fault is planted.
func TestPropertyNoFault(t *testing.T) {
	eachSeed(t, 20, func(t *testing.T, g *generator) {
		if n := (&fault{}).found(t, g); n > 0 {
			t.Errorf("seed %d, request %d: no fault was planted, and one was found", g.seed, n)
		}
	})
}

func eachView(do func(*view)) func(*Bundle) {
	return func(b *Bundle) {
		for _, v := range b.views {
			do(v)
		}
	}
}

func eachIndex(do func(index)) func(*Bundle) {
	return eachView(func(v *view) { do(v.index) })
}

// filedAs files policies as if their facts were others.
func filedAs(change func(*facts)) func(*Bundle) {
	return eachView(func(v *view) {
		changed := make([]*policy, len(v.policies))
		for n, p := range v.policies {
			q := *p
			q.facts.scope, q.facts.leading = slices.Clone(p.facts.scope), slices.Clone(p.facts.leading)
			change(&q.facts)
			changed[n] = &q
		}
		v.index = newIndex(changed)
	})
}

// filedAndReadAs changes the facts of policies for every use of them.
func filedAndReadAs(change func(*facts)) func(*Bundle) {
	return func(b *Bundle) {
		for p := range b.everyPolicy {
			change(&p.facts)
		}
		eachView(func(v *view) { v.index = newIndex(v.policies) })(b)
	}
}

// everyPolicy yields each policy once, although every tenant's view has the root's.
func (b *Bundle) everyPolicy(yield func(*policy) bool) {
	seen := map[*policy]bool{}
	for _, v := range b.views {
		for _, p := range v.policies {
			if !seen[p] && !yield(p) {
				return
			}
			seen[p] = true
		}
	}
}

func eachTest(f *facts, do func(*scopeTest)) {
	for _, tests := range [][]scopeTest{f.scope, f.leading} {
		for n := range tests {
			do(&tests[n])
		}
	}
}

func testsAmong(conjuncts []conjunct, that func(conjunct) bool) []scopeTest {
	var tests []scopeTest
	for _, c := range conjuncts {
		if t, ok := testOfNode(c.body); ok && that(c) {
			tests = append(tests, t)
		}
	}
	return tests
}

func dropTypes(numbers map[indexKey][]int32) {
	for key := range numbers {
		if key.form == keyType {
			delete(numbers, key)
		}
	}
}
