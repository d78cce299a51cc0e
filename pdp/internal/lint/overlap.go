package lint

import (
	"fmt"
	"math/big"
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go/types"

	"policy-service/pdp/internal/access"
	"policy-service/pdp/internal/bundle"
)

// overlaps warns of a permit without obligations if another permit, which has some, is for the
// same requests. Such a request may satisfy the first permit alone, and is then allowed with no
// obligation at all. There is no warning in two cases.
//   - Both permits cannot apply to one request: their tests (of the scope, and of leading
//     clauses) exclude each other; no action that the bundle knows, or no combination of types,
//     passes the tests of both; they want one term to be different strings, or to compare with
//     literals as no value does, as in x <= 5 and x > 5; or one rules out, in an unless or behind
//     a !, what the other demands.
//   - The obliging permit applies whenever the other does: each of its tests follows from the
//     other's tests, and each of its other clauses is a clause of the other too.
//
// Nor is there one if declarations of tool access keep the request from avoiding the obligation: see
// [overlap.declared].
//
// The work is the number of permits with obligations times the number of permits without. There
// is one warning for a permit, however many obliging permits it overlaps with, and one for all
// permits that overlap with the same ones: they have one cause.
func (l *linter) overlaps(v *bundle.View) {
	free, obliging := l.permits(v)
	if len(free) == 0 || len(obliging) == 0 {
		return
	}
	o := overlap{l: l, v: v, rules: l.rulesOf(v), bits: map[settingKey]int{}, up: map[string]bundle.Lineage{}}
	var others []*scoped
	for _, p := range obliging {
		s := o.scoped(p)
		s.evadable = o.rules != nil && l.evadable(p)
		others = append(others, s)
	}
	alike := map[string]*evasion{} // by the permits that are got round
	var all []*evasion
	for _, p := range free {
		around := o.avoided(o.scoped(p), others)
		if len(around) == 0 {
			continue
		}
		key := p.Access + "\n" + strings.Join(named(around), "\n")
		if alike[key] == nil {
			alike[key] = &evasion{around: around}
			all = append(all, alike[key])
		}
		alike[key].by = append(alike[key].by, p)
	}
	for _, e := range all {
		l.warnOverlap(v, e)
	}
}

// evasion is that permits without an obligation get round others that have one.
type evasion struct{ by, around []*bundle.Policy }

// warnOverlap warns at the permit without an obligation. If there are several, the warning stands at the permit that they
// get round, but never at one of the root about what a tenant has written.
func (l *linter) warnOverlap(v *bundle.View, e *evasion) {
	by, around := e.by[0], e.around[0]
	try := "name the obligation %s too, keep their scopes apart, " +
		"or exclude %[1]s with unless { … } what the other has in its when { … }"
	if by.Access != "" {
		try = "demand an approval %s too, or have the other not depend on what a request can leave out"
	}
	if len(e.by) == 1 {
		l.warn(by, "obligation_overlap",
			"permits without an obligation, and may be alone in permitting, what "+joinFirst(named(e.around))+" permits with one",
			fmt.Sprintf(try, "here"),
		)
		return
	}
	if around.Tenant != v.Tenant {
		l.warn(by, "obligation_overlap",
			"and "+joinFirst(named(e.by[1:]))+" permit without an obligation, and may be alone in permitting, what "+
				joinFirst(named(e.around))+" permits with one",
			fmt.Sprintf(try, "in each"),
		)
		return
	}
	also := ""
	if len(e.around) > 1 {
		also = ", as " + joinFirst(named(e.around[1:])) + " does"
	}
	l.warn(around, "obligation_overlap",
		"permits with an obligation"+also+", what "+joinFirst(named(e.by))+" permit without one, and each of them may be alone in permitting it",
		fmt.Sprintf(try, "in each of them"),
	)
}

// named are policies as messages name them.
func named(policies []*bundle.Policy) (names []string) {
	for _, p := range policies {
		names = append(names, bundle.Quote(p.Id)+" at "+p.Position)
	}
	return names
}

// permits returns the permits of a view that can apply: those without obligations, and those
// with some. One that only repeats others gets round nothing that they do not. Two permits of the root are compared with each other in the root's own view. In a
// tenant's view a permit of the root is only compared with the tenant's permits.
func (l *linter) permits(v *bundle.View) (free, obliging []*bundle.Policy) {
	var own struct{ free, obliging bool } // whether a permit of the view's own is one
	for _, p := range v.Policies {
		if p.Forbids() || p.Repeats() {
			continue
		}
		if len(p.Obliges) > 0 {
			obliging = append(obliging, p)
			own.obliging = own.obliging || p.Tenant == v.Tenant
		} else {
			free = append(free, p)
			own.free = own.free || p.Tenant == v.Tenant
		}
	}
	leftOut := func(others bool) func(*bundle.Policy) bool {
		return func(p *bundle.Policy) bool { return p.Tenant != v.Tenant && !others || l.neverApplies(p) }
	}
	return slices.DeleteFunc(free, leftOut(own.obliging)), slices.DeleteFunc(obliging, leftOut(own.free))
}

// joinFirst joins the first names, and says how many more there are.
func joinFirst(names []string) string {
	const most = 3
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}

// overlap compares the permits of one view.
type overlap struct {
	l     *linter
	v     *bundle.View
	rules map[string]*access.Rule // by the policies that are made of them; nil if there is no declaration
	bits  map[settingKey]int
	both  big.Int                   // memory for the settings that two permits share
	up    map[string]bundle.Lineage // of actions
}

// settingKey tells settings of two policies apart.
type settingKey struct {
	types  [bundle.Variables]types.EntityType
	action types.EntityUID
}

// scoped is a permit, and what its text says about the requests that it is for.
type scoped struct {
	policy   *bundle.Policy
	rule     *access.Rule // that it is made of, if it is made of one
	tests    []bundle.ScopeTest
	settings big.Int // the settings that the permit can meet, as bits
	// actions are the actions that the bundle knows and that pass the permit's tests. It is
	// nil if the permit tests no action. Then the permit is for unknown actions as well.
	actions map[string]struct{}
	clauses []string // the keys of the clauses that are no tests
	// evadable is set if a request can leave out what the permit wants to see of principal or context.
	evadable bool
	// If the permit applies, every demand is true, one clause of each list of refuses is not
	// true, every choice is kept, and every comparison holds.
	demands     map[string]struct{} // the keys of clauses
	refuses     [][]clause
	choices     []choice
	comparisons []comparison
}

// choice says that a term must equal one of some strings.
type choice struct {
	term    string
	strings []string // as the policy writes them
}

// choiceOf reads a clause of the form t == "a" or ["a", "b"].contains(t). It compares texts,
// because OpOf does not tell == from !=, nor contains from containsAny.
func choiceOf(c bundle.Conjunct) (choice, bool) {
	op, parts := bundle.OpOf(c.Body), bundle.Children(c.Body)
	if op != bundle.OpEqual && op != bundle.OpContains {
		return choice{}, false
	}
	text := func(c bundle.Conjunct) string {
		return strings.TrimSuffix(strings.TrimPrefix(c.Text(), "when { "), " }")
	}
	whole := text(bundle.Conjunct{Body: c.Body})
	left, right := text(bundle.Conjunct{Body: parts[0]}), text(bundle.Conjunct{Body: parts[1]})
	of, members := choice{term: left}, parts[1:]
	if op == bundle.OpContains && bundle.OpOf(parts[0]) == bundle.OpBuild {
		of.term, members = right, bundle.Children(parts[0])
	}
	if strings.Contains(of.term, `"`) { // the text of a conjunct does not keep spaces between quotes
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

// excludes reports whether no value of a term keeps both choices.
func (c choice) excludes(other choice) bool {
	shared := func(text string) bool { return slices.Contains(other.strings, text) }
	return c.term == other.term && !slices.ContainsFunc(c.strings, shared)
}

// clause is one condition of a permit.
type clause struct {
	key  string            // equal for clauses with the same words
	test *bundle.ScopeTest // nil if the clause is no test like those of a scope
}

func clauseOf(c bundle.Conjunct) clause {
	if t, ok := bundle.TestOfNode(c.Body); ok {
		return clause{t.Key(), &t}
	}
	return clause{key: c.Text()}
}

func (o *overlap) scoped(p *bundle.Policy) *scoped {
	s := &scoped{policy: p, rule: o.rules[p.Id], tests: p.Tests(), demands: map[string]struct{}{}}
	namesActions := func(t bundle.ScopeTest) bool { return t.Of == bundle.ActionVar && t.Uids != nil }
	if slices.ContainsFunc(s.tests, namesActions) {
		s.actions = map[string]struct{}{}
		for _, id := range o.v.Actions {
			if o.passes(id, s.tests) {
				s.actions[id] = struct{}{}
			}
		}
	}
	for _, set := range o.l.settings(p) {
		s.settings.SetBit(&s.settings, o.bit(set), 1)
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

// passes reports whether an action passes the tests of actions.
func (o *overlap) passes(id string, tests []bundle.ScopeTest) bool {
	up, known := o.up[id]
	if !known {
		up = bundle.LineageOf(types.EntityUID{Type: o.l.b.Config.ActionType, ID: types.String(id)}, o.v.Store)
		o.up[id] = up
	}
	return !slices.ContainsFunc(tests, func(t bundle.ScopeTest) bool { return t.Of == bundle.ActionVar && !up.Holds(&t) })
}

// bit returns the number of a setting: settings of two policies have the same if they are alike.
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

// demand notes a condition that is true if the permit applies.
func (s *scoped) demand(c bundle.Conjunct) {
	for _, part := range bundle.Flatten(c.Body, nil) {
		s.demands[clauseOf(bundle.Conjunct{Body: part}).key] = struct{}{}
		if c, ok := choiceOf(bundle.Conjunct{Body: part}); ok {
			s.choices = append(s.choices, c)
		}
		if c, ok := comparisonOf(bundle.Conjunct{Body: part}, true); ok {
			s.comparisons = append(s.comparisons, c)
		}
		if bundle.OpOf(part) == bundle.OpNot {
			s.refuse(bundle.Conjunct{Body: bundle.Children(part)[0]})
		}
	}
}

// refuse notes a condition that is false if the permit applies.
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
		if len(all) == 1 {
			if c, ok := comparisonOf(c, false); ok {
				s.comparisons = append(s.comparisons, c)
			}
		}
		s.refuses = append(s.refuses, all)
	}
}

// avoided finds the obliging permits that a permit without obligations lets a request avoid.
func (o *overlap) avoided(p *scoped, others []*scoped) (around []*bundle.Policy) {
	sets := o.l.settings(p.policy)
	for _, other := range others {
		ofView := p.policy.Tenant == o.v.Tenant || other.policy.Tenant == o.v.Tenant
		if ofView && !p.declared(other) && !o.apart(p, other) && !o.follows(p, sets, other) {
			around = append(around, other.policy)
		}
	}
	return around
}

// declared reports whether it is for declarations of tool access to say what is owed. There are three
// cases.
//   - The obligation is a declaration's. Then it is owed whatever is permitted by hand besides, and
//     of what its rule is not about, the declaration itself says who may use it.
//   - Both are of declarations, of different owners or of rules for different tools.
//   - The permit without an obligation is a declaration's, and the other does not name the owner's
//     tools. Who opens tools does not know of all that is permitted with an obligation elsewhere:
//     what is demanded of all tools of some kind is owed besides, or is for a forbid to demand.
//
// Otherwise the permit of the declaration is a way around the other, if a request can leave out what
// the other wants to see, such as a role. What a request says of the tool does not count here: whoever
// asks for a tool does not say of what kind it is.
func (s *scoped) declared(other *scoped) bool {
	mine, theirs := s.policy.Access, other.policy.Access
	switch {
	case mine == "":
		return theirs != ""
	case theirs == "" && !other.namesTools(mine+":"):
		return true
	case theirs != "" && mine != theirs, s.rule != nil && other.rule != nil && !s.rule.SharesTools(other.rule):
		return true
	}
	return !other.evadable
}

// namesTools reports whether a permit is for resources whose ids begin so.
func (s *scoped) namesTools(prefix string) bool {
	begins := func(uid types.EntityUID) bool { return strings.HasPrefix(string(uid.ID), prefix) }
	return slices.ContainsFunc(s.tests, func(t bundle.ScopeTest) bool {
		return t.Of == bundle.ResourceVar && (strings.HasPrefix(t.Prefix, prefix) || slices.ContainsFunc(t.Uids, begins))
	})
}

// apart reports whether no request satisfies both permits.
func (o *overlap) apart(s, other *scoped) bool {
	testsExclude := func(t bundle.ScopeTest) bool { return slices.ContainsFunc(other.tests, t.Excludes) }
	choicesExclude := func(c choice) bool { return slices.ContainsFunc(other.choices, c.excludes) }
	return slices.ContainsFunc(s.tests, testsExclude) || slices.ContainsFunc(s.choices, choicesExclude) || comparisonsExclude(s, other) ||
		s.actions != nil && other.actions != nil && disjoint(s.actions, other.actions) ||
		o.both.And(&s.settings, &other.settings).Sign() == 0 || s.ruledOut(other) || other.ruledOut(s)
}

func disjoint(a, b map[string]struct{}) bool {
	for key := range a {
		if _, ok := b[key]; ok {
			return false
		}
	}
	return true
}

// ruledOut reports whether the other permit refuses what this one demands.
func (s *scoped) ruledOut(other *scoped) bool {
	open := func(c clause) bool {
		_, demanded := s.demands[c.key]
		return !demanded && (c.test == nil || !c.test.Follows(s.tests))
	}
	return slices.ContainsFunc(other.refuses, func(all []clause) bool { return !slices.ContainsFunc(all, open) })
}

// follows reports whether the other permit certainly applies whenever p does. sets are the
// settings of p.
func (o *overlap) follows(p *scoped, sets []*setting, other *scoped) bool {
	for _, t := range other.tests {
		unsettled := func(set *setting) bool { return o.l.truth(set, t) != outcomeTrue }
		if !t.Follows(p.tests) && !o.passedByAll(p.actions, t) && slices.ContainsFunc(sets, unsettled) {
			return false
		}
	}
	return !slices.ContainsFunc(other.clauses, func(key string) bool { return !slices.Contains(p.clauses, key) })
}

// passedByAll reports whether all the actions pass a test of actions.
func (o *overlap) passedByAll(actions map[string]struct{}, t bundle.ScopeTest) bool {
	for id := range actions {
		if !o.passes(id, []bundle.ScopeTest{t}) {
			return false
		}
	}
	return t.Of == bundle.ActionVar && actions != nil
}
