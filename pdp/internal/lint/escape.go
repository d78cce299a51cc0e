package lint

import (
	"slices"

	"github.com/cedar-policy/cedar-go/types"

	"policy-service/pdp/internal/bundle"
)

// escapes warns of forbids that a caller can switch off by leaving an attribute out, or by
// sending a value of another type. A caller cannot escape by causing an error, because a
// forbid that errs denies, unless bundle.yaml says forbid_errors: ignore.
func (l *linter) escapes(p *bundle.Policy, terms []*bundle.Term) {
	e := l.escapeOf(p, terms)
	var omitted, parents, retyped paths
	for _, set := range l.settings(p) {
		for _, path := range e.candidates(set) {
			typ, entity := set.typeOf(path.Root)
			switch {
			case !l.optional(p, set, path) || !e.escapesBy(change{set: set, path: path}):
			case entity && l.givesParents(typ, path) && !e.readsInside(path):
				parents.add(path)
			default:
				omitted.add(path)
			}
			if l.b.Schema == nil && l.sendable(p, set, path) && e.escapesBy(change{set: set, path: path, retyped: true}) {
				retyped.add(path)
			}
		}
	}
	for _, path := range omitted {
		l.warn(p, "forbid_omittable",
			"does not apply where the request leaves out "+path.String()+", so leaving it out is a way around it",
			"forbid unless the request shows what must be there, as in `unless { "+path.Asked()+" && … }`, or "+
				l.howToEnsure(path),
		)
	}
	try := "restrict it to types whose parents are stored and known, or forbid unless a parent is there"
	if p.Access != "" {
		try = "name the agents one by one, or write an allowlist, where who leaves it out is denied"
	}
	for _, path := range parents {
		l.warn(p, "forbid_omittable",
			"tests parents that "+path.String()+" gives, and does not apply where the request leaves that out",
			try,
		)
	}
	for _, path := range retyped {
		l.warn(p, "forbid_untyped_comparison",
			"compares "+path.String()+", which no schema types: "+
				"sent as a value of another type it compares without an error, and the policy does not apply",
			"declare the attribute in a schema, or forbid unless it has a permitted value",
		)
	}
}

// sendable reports whether a caller can send a value that counts at the path.
func (l *linter) sendable(p *bundle.Policy, set *setting, path bundle.AttributePath) bool {
	switch path.Root {
	case "context":
		return !l.b.Config.OfVote(p, path) && path.Names[0] != "pdp" && !path.Protocol() && (path.Names[0] != "action" || len(path.Names) > 1)
	case "principal", "resource":
		typ, _ := set.typeOf(path.Root)
		return !l.fixed(p, typ, path.Names[0])
	}
	return false
}

// escape finds out whether a change by the caller switches off one policy.
type escape struct {
	l     *linter
	p     *bundle.Policy
	terms []*bundle.Term
}

func (l *linter) escapeOf(p *bundle.Policy, terms []*bundle.Term) escape {
	e := escape{l: l, p: p}
	for _, t := range p.Facts.Scope {
		e.terms = append(e.terms, &bundle.Term{Op: bundle.OpTest, Test: t})
	}
	e.terms = append(e.terms, terms...)
	return e
}

// evadable reports whether a caller can keep a permit from applying by leaving out something about
// the principal or in the context. It is true for a permit that is too long to say.
func (l *linter) evadable(p *bundle.Policy) bool {
	if tooLong(p) {
		return true
	}
	e := l.escapeOf(p, p.Terms())
	return slices.ContainsFunc(l.settings(p), func(set *setting) bool {
		return slices.ContainsFunc(e.candidates(set), func(path bundle.AttributePath) bool {
			if path.Root == "resource" || !l.optional(p, set, path) {
				return false
			}
			all := e.outcomes(change{set: set, path: path})
			return all.has(outcomeTrue, outcomeFalse) || all.has(outcomeTrue, outcomeError)
		})
	})
}

// candidates returns the attributes on which the policy depends, and the attributes that give
// parents to principal and resource. An attribute comes before those that it contains.
func (e *escape) candidates(set *setting) paths {
	var all paths
	for _, path := range e.p.Facts.Reads {
		for n := range path.Names {
			all = with(all, bundle.AttributePath{Root: path.Root, Names: path.Names[:n+1]})
		}
	}
	for _, root := range []string{"principal", "resource"} {
		typ, _ := set.typeOf(root)
		for _, rule := range e.l.b.Config.Parents[typ] {
			all = with(all, bundle.AttributePath{Root: root, Names: []string{rule.Attribute}})
		}
	}
	slices.SortFunc(all, bundle.Shorter)
	return all
}

// readsInside reports whether the policy reads the attribute or a member below it.
func (e *escape) readsInside(path bundle.AttributePath) bool {
	return slices.ContainsFunc(e.p.Facts.Reads, path.LeadsTo)
}

// change is one thing that a caller does to an attribute: leave it out, or send it with a
// value of another type (retyped).
type change struct {
	set     *setting
	path    bundle.AttributePath
	retyped bool
}

// outcomes returns the outcomes of the whole policy.
func (e *escape) outcomes(c change) termOutcomes {
	all := pairOf(outcomeTrue, outcomeTrue)
	for _, t := range e.terms {
		all = all.with(e.termOutcomes(c, t), and)
	}
	return all
}

// escapesBy reports whether the policy can apply before the change and not after it.
func (e *escape) escapesBy(c change) bool {
	all := e.outcomes(c)
	escapesByError := !c.retyped && e.l.b.Config.IgnoreForbidErrors
	return all.has(outcomeTrue, outcomeFalse) || escapesByError && all.has(outcomeTrue, outcomeError)
}

func (e *escape) termOutcomes(c change, t *bundle.Term) termOutcomes {
	if t.Op == bundle.OpTest {
		return e.testOutcomes(c, t.Test)
	}
	args := make([]termOutcomes, len(t.Args))
	for i, arg := range t.Args {
		args[i] = e.termOutcomes(c, arg)
	}
	switch t.Op {
	case bundle.OpTrue:
		return pairOf(outcomeTrue, outcomeTrue)
	case bundle.OpFalse:
		return pairOf(outcomeFalse, outcomeFalse)
	case bundle.OpPath:
		return c.readOutcomes(t.Path)
	case bundle.OpHas:
		return c.hasOutcomes(t.Path)
	case bundle.OpNot:
		return args[0].not()
	case bundle.OpAnd:
		return args[0].with(args[1], and)
	case bundle.OpOr:
		return args[0].with(args[1], or)
	case bundle.OpIf:
		return choose(args[0], args[1], args[2])
	case bundle.OpEqual, bundle.OpContains:
		return equalityOutcomes(args)
	case bundle.OpIsEmpty: // a set of elements of another type is as empty as the set was before
		return joinedOutcomes(args, false) | args[0].with(same, func(x, y termOutcome) termOutcome {
			if x == outcomeOddType {
				return y
			}
			return x
		})
	case bundle.OpIn:
		return joinedOutcomes(args, false) | e.losesParents(c, t.Args[0], nil)
	}
	return joinedOutcomes(args, t.Op == bundle.OpBuild)
}

// equalityOutcomes returns the outcomes of == and contains. For a value of another type, or a set of
// such values, that is false and no error.
func equalityOutcomes(args []termOutcomes) (result termOutcomes) {
	for b1, a1 := range args[0].each {
		for b2, a2 := range args[1].each {
			if max(a1, a2) != outcomeOddType {
				result |= joinedOutcomes([]termOutcomes{pairOf(b1, a1), pairOf(b2, a2)}, true)
			} else if max(b1, b2) != outcomeError {
				result |= pairsOf(anything, []termOutcome{outcomeFalse})
			}
		}
	}
	return result
}

// readOutcomes returns the outcomes of reading a path.
func (c *change) readOutcomes(path bundle.AttributePath) termOutcomes {
	switch {
	case c.path.Same(path) && c.retyped:
		return pairsOf(anything, []termOutcome{outcomeOddType})
	case c.path.LeadsTo(path):
		return pairsOf(anything, []termOutcome{outcomeError})
	case path.LeadsTo(c.path) && (len(path.Names) > 0 || path.Root == "context"):
		return differs // the record that the attribute is in
	}
	return same
}

// hasOutcomes returns the outcomes of testing with `has` whether a path is there.
func (c *change) hasOutcomes(path bundle.AttributePath) termOutcomes {
	switch {
	case path.Same(c.path) && !c.retyped:
		return pairOf(outcomeTrue, outcomeFalse)
	case path.LeadsTo(c.path): // the changed attribute is there, and so is every record around it
		return pairOf(outcomeTrue, outcomeTrue)
	case c.path.LeadsTo(path):
		return pairsOf(anything, []termOutcome{outcomeError})
	}
	return same
}

// testOutcomes returns the outcomes of a test like those of a scope. The types alone may settle it. If
// not, the change may take away the parents that it tests. Nothing else is known of it here.
func (e *escape) testOutcomes(c change, t bundle.ScopeTest) termOutcomes {
	if settled := e.l.truth(c.set, t); settled != outcomeError {
		return pairOf(settled, settled)
	}
	if t.Uids == nil || t.Eq {
		return same
	}
	variable := bundle.AttributePath{Root: bundle.VariableNames[t.Of]}
	return same | e.losesParents(c, &bundle.Term{Op: bundle.OpPath, Path: variable}, t.Uids)
}

// losesParents returns the pair (true, false) if the change takes away parents through which a
// variable can be in one of the groups. Nil groups stand for any group. In all other cases
// losesParents returns the empty set.
func (e *escape) losesParents(c change, variable *bundle.Term, groups []types.EntityUID) termOutcomes {
	typ, entity := c.set.typeOf(c.path.Root)
	sameVariable := variable.Op == bundle.OpPath && len(variable.Path.Names) == 0 && variable.Path.Root == c.path.Root
	if !sameVariable || c.retyped || !entity || len(c.path.Names) > 1 {
		return 0
	}
	for _, rule := range e.l.b.Config.Parents[typ] {
		reaches := func(group types.EntityUID) bool {
			return group.Type == rule.Parent || e.l.isAbove(e.p, group, rule.Parent)
		}
		if rule.Attribute == c.path.Names[0] && (groups == nil || slices.ContainsFunc(groups, reaches)) {
			return pairOf(outcomeTrue, outcomeFalse)
		}
	}
	return 0
}
