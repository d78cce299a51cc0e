package lint

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go/types"

	"policy-service/pdp/internal/bundle"
)

// overlaps warns of a permit without obligations, where another permit that has
// some is for the same requests: such a request may satisfy the first alone, and
// then is allowed with no obligation at all. It does not warn
//   - where both cannot apply to one request: their tests (of the scope, and of
//     clauses that lead) exclude each other; no action that the bundle knows, or
//     no combination of types, passes the tests of both; they want one term to be
//     different strings; or one rules out in an unless, or behind a !, what the
//     other demands;
//   - where the obliging permit applies whenever the other does: each of its
//     tests follows from the other's, and each of its other clauses is one of the
//     other's too.
//
// The work is permits with obligations times permits without; a permit is warned
// of once, whatever the number of permits it gets round.
func (l *linter) overlaps(v *bundle.View) {
	free, obliging := l.permits(v)
	if len(free) == 0 || len(obliging) == 0 {
		return
	}
	o := overlap{l: l, v: v, bits: map[settingKey]int{}}
	var others []scoped
	for _, p := range obliging {
		others = append(others, o.scoped(p))
	}
	for _, p := range free {
		s := o.scoped(p)
		if around := o.around(&s, others); len(around) > 0 {
			l.warn(p, "obligation_overlap", "permits without an obligation, and may be alone in permitting, what "+few(around)+" permits with one", "name the obligation here too, keep their scopes apart, or exclude here with unless { … } what the other has in its when { … }")
		}
	}
}

// permits are the permits of a view without obligations, and those with some,
// that can apply. The root's are looked at beside each other in its own view: in
// a tenant's only beside the tenant's.
func (l *linter) permits(v *bundle.View) (free, obliging []*bundle.Policy) {
	var own [2]bool // whether some of the view's own are free, are obliging
	for _, p := range v.Policies {
		if p.Forbids() {
			continue
		}
		if len(p.Obliges) > 0 {
			obliging = append(obliging, p)
			own[1] = own[1] || p.Tenant == v.Tenant
		} else {
			free = append(free, p)
			own[0] = own[0] || p.Tenant == v.Tenant
		}
	}
	unasked := func(others bool) func(*bundle.Policy) bool {
		return func(p *bundle.Policy) bool { return p.Tenant != v.Tenant && !others || l.never(p) }
	}
	return slices.DeleteFunc(free, unasked(own[1])), slices.DeleteFunc(obliging, unasked(own[0]))
}

// few names the first of many.
func few(names []string) string {
	const most = 3
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}

// overlap compares the permits of one view.
type overlap struct {
	l    *linter
	v    *bundle.View
	bits map[settingKey]int
}

// settingKey tells settings of two policies apart.
type settingKey struct {
	types  [bundle.Variables]types.EntityType
	action types.EntityUID
}

// scoped is what a permit says of whom it is for.
type scoped struct {
	*bundle.Policy
	tests    []bundle.ScopeTest
	settings []uint64 // those it can meet, as bits
	// actions are those that the bundle knows and that pass its tests; nil where
	// it tests none, and then it is for actions that nobody knows as well.
	actions map[string]struct{}
	clauses []string            // the keys of those that are no tests
	demands map[string]struct{} // the keys of what is true where it applies
	refuses [][]clause          // of each list, one is not true where it applies
	choices []choice            // each is kept where it applies
}

// choice is what a term must be one of.
type choice struct {
	term    string
	strings []string // as they are written
}

// choiceOf reads a clause as t == "a", or as ["a", "b"].contains(t). It compares
// texts, because OpOf does not tell == from !=, nor contains from containsAny.
func choiceOf(c bundle.Conjunct) (choice, bool) {
	op, parts := bundle.OpOf(c.Body), bundle.Children(c.Body)
	if op != bundle.OpEqual && op != bundle.OpContains {
		return choice{}, false
	}
	text := func(c bundle.Conjunct) string {
		return strings.TrimSuffix(strings.TrimPrefix(c.Text(), "when { "), " }")
	}
	whole, left, right := text(bundle.Conjunct{Body: c.Body}), text(bundle.Conjunct{Body: parts[0]}), text(bundle.Conjunct{Body: parts[1]})
	of, members := choice{term: left}, parts[1:]
	if op == bundle.OpContains && bundle.OpOf(parts[0]) == bundle.OpBuild {
		of.term, members = right, bundle.Children(parts[0])
	}
	if strings.Contains(of.term, `"`) { // text does not keep the spaces between quotes
		return choice{}, false
	}
	for _, m := range members {
		literal := text(bundle.Conjunct{Body: m})
		if !strings.HasPrefix(literal, `"`) || len(bundle.Children(m)) > 0 {
			return choice{}, false
		}
		of.strings = append(of.strings, literal)
	}
	return of, op == bundle.OpEqual && whole == left+" == "+right ||
		op == bundle.OpContains && of.term == right && whole == left+".contains("+right+")"
}

// excludes reports whether no term keeps both.
func (c choice) excludes(other choice) bool {
	return c.term == other.term && !slices.ContainsFunc(c.strings, func(text string) bool { return slices.Contains(other.strings, text) })
}

// clause is what a permit says apart from its tests, or one of them again.
type clause struct {
	key  string // the same for clauses that say the same in the same words
	test *bundle.ScopeTest
}

func clauseOf(c bundle.Conjunct) clause {
	if t, ok := bundle.TestOfNode(c.Body); ok {
		return clause{t.Key(), &t}
	}
	return clause{key: c.Text()}
}

func (o *overlap) scoped(p *bundle.Policy) scoped {
	s := scoped{Policy: p, tests: p.Tests(), demands: map[string]struct{}{}}
	if slices.ContainsFunc(s.tests, func(t bundle.ScopeTest) bool { return t.Of == bundle.ActionVar && t.Uids != nil }) {
		s.actions = map[string]struct{}{}
		for _, id := range o.v.Actions {
			if o.passes(id, s.tests) {
				s.actions[id] = struct{}{}
			}
		}
	}
	for _, set := range o.l.settings(p) {
		s.meets(o.bit(set))
	}
	for _, t := range p.Facts.Scope {
		s.demands[t.Key()] = struct{}{}
	}
	for n, c := range p.Facts.Conjuncts {
		if n >= len(p.Facts.Leading) {
			s.clauses = append(s.clauses, c.Text())
		}
		if c.Unless {
			s.refuse(bundle.Conjunct{Body: c.Body})
		} else {
			s.demand(c)
		}
	}
	return s
}

func (o *overlap) passes(id string, tests []bundle.ScopeTest) bool {
	up := bundle.LineageOf(types.EntityUID{Type: o.l.b.Config.ActionType, ID: types.String(id)}, o.v.Store)
	return !slices.ContainsFunc(tests, func(t bundle.ScopeTest) bool { return t.Of == bundle.ActionVar && !up.Holds(&t) })
}

func (o *overlap) bit(set *setting) int {
	key := settingKey{types: set.types}
	if set.action != nil {
		key.action = set.action.Uid
	}
	bit, known := o.bits[key]
	if !known {
		bit = len(o.bits)
		o.bits[key] = bit
	}
	return bit
}

func (s *scoped) meets(bit int) {
	for len(s.settings) <= bit/64 {
		s.settings = append(s.settings, 0)
	}
	s.settings[bit/64] |= 1 << (bit % 64)
}

// demand notes what is true where the permit applies.
func (s *scoped) demand(c bundle.Conjunct) {
	for _, part := range bundle.Flatten(c.Body, nil) {
		s.demands[clauseOf(bundle.Conjunct{Body: part}).key] = struct{}{}
		if c, ok := choiceOf(bundle.Conjunct{Body: part}); ok {
			s.choices = append(s.choices, c)
		}
		if bundle.OpOf(part) == bundle.OpNot {
			s.refuse(bundle.Conjunct{Body: bundle.Children(part)[0]})
		}
	}
}

// refuse notes what is false where the permit applies.
func (s *scoped) refuse(c bundle.Conjunct) {
	switch bundle.OpOf(c.Body) {
	case bundle.OpNot:
		s.demand(bundle.Conjunct{Body: bundle.Children(c.Body)[0]})
	case bundle.OpOr:
		for _, either := range bundle.Children(c.Body) {
			s.refuse(bundle.Conjunct{Body: either})
		}
	default:
		var all []clause
		for _, part := range bundle.Flatten(c.Body, nil) {
			all = append(all, clauseOf(bundle.Conjunct{Body: part}))
		}
		s.refuses = append(s.refuses, all)
	}
}

// around names the obliging permits that a permit without obligations gets round.
func (o *overlap) around(p *scoped, others []scoped) []string {
	var around []string
	sets := o.l.settings(p.Policy)
	for n := range others {
		other := &others[n]
		if (p.Tenant == o.v.Tenant || other.Tenant == o.v.Tenant) && !p.apart(other) && !o.follows(p, sets, other) {
			around = append(around, bundle.Quote(other.Id)+" at "+other.Position)
		}
	}
	return around
}

// apart reports whether no request satisfies both.
func (s *scoped) apart(other *scoped) bool {
	for _, t := range s.tests {
		if slices.ContainsFunc(other.tests, t.Excludes) {
			return true
		}
	}
	for _, c := range s.choices {
		if slices.ContainsFunc(other.choices, c.excludes) {
			return true
		}
	}
	return s.actions != nil && other.actions != nil && disjoint(s.actions, other.actions) ||
		!s.shares(other.settings) || s.ruledOut(other) || other.ruledOut(s)
}

func disjoint(a, b map[string]struct{}) bool {
	for key := range a {
		if _, ok := b[key]; ok {
			return false
		}
	}
	return true
}

func (s *scoped) shares(settings []uint64) bool {
	for n := range min(len(s.settings), len(settings)) {
		if s.settings[n]&settings[n] != 0 {
			return true
		}
	}
	return false
}

// ruledOut reports whether the other refuses what this one demands.
func (s *scoped) ruledOut(other *scoped) bool {
	open := func(c clause) bool {
		_, demanded := s.demands[c.key]
		return !demanded && (c.test == nil || !c.test.Follows(s.tests))
	}
	return slices.ContainsFunc(other.refuses, func(all []clause) bool { return !slices.ContainsFunc(all, open) })
}

// follows reports whether the other certainly applies wherever a permit does,
// whose settings are given.
func (o *overlap) follows(p *scoped, sets []*setting, other *scoped) bool {
	for _, t := range other.tests {
		unsettled := func(set *setting) bool { return o.l.truth(set, t) != yes }
		if !t.Follows(p.tests) && !o.passedByAll(p.actions, t) && slices.ContainsFunc(sets, unsettled) {
			return false
		}
	}
	return !slices.ContainsFunc(other.clauses, func(key string) bool { return !slices.Contains(p.clauses, key) })
}

// passedByAll reports whether a test holds for each of some actions.
func (o *overlap) passedByAll(actions map[string]struct{}, t bundle.ScopeTest) bool {
	for id := range actions {
		if !o.passes(id, []bundle.ScopeTest{t}) {
			return false
		}
	}
	return t.Of == bundle.ActionVar && actions != nil
}
