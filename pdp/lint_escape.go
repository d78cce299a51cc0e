package pdp

import (
	"slices"

	"github.com/cedar-policy/cedar-go/types"
)

// escapes warns of forbids that a caller switches off: by leaving an attribute
// out, or by sending one of another type. An error is no way out, because a
// forbid that errs denies, unless bundle.yaml says forbid_errors: ignore.
func (l *linter) escapes(p *policy, terms []*term) {
	e := escape{l: l, p: p}
	for _, t := range p.facts.scope {
		e.terms = append(e.terms, &term{op: opTest, test: t})
	}
	e.terms = append(e.terms, terms...)
	var omitted, parents, retyped paths
	for _, set := range l.settings(p) {
		for _, path := range e.candidates(set) {
			typ, entity := set.typeOf(path.root)
			switch {
			case !l.optional(p, set, path) || !e.lost(change{set: set, path: path}):
			case entity && l.givesParents(typ, path) && !e.tests(path):
				parents.add(path)
			default:
				omitted.add(path)
			}
			if l.b.schema == nil && l.sendable(p, set, path) && e.lost(change{set: set, path: path, retyped: true}) {
				retyped.add(path)
			}
		}
	}
	for _, path := range omitted {
		l.warn(p, "forbid_omittable", "does not apply where the request leaves out "+path.String()+", so leaving it out is a way around it", "forbid unless the request shows what must be there, as in `unless { "+path.asked()+" && … }`, or "+l.ensured(path))
	}
	for _, path := range parents {
		l.warn(p, "forbid_omittable", "tests parents that "+path.String()+" gives, and does not apply where the request leaves that out", "restrict it to types whose parents are stored and known, or forbid unless a parent is there")
	}
	for _, path := range retyped {
		l.warn(p, "forbid_untyped_comparison", "compares "+path.String()+", which no schema types: sent as a value of another type it compares without an error, and the policy does not apply", "declare the attribute in a schema, or forbid unless it has a permitted value")
	}
}

// sendable reports whether a caller can send a value that counts at the path.
func (l *linter) sendable(p *policy, set *setting, path attributePath) bool {
	switch path.root {
	case "context":
		return path.names[0] != "pdp" && !path.protocol() && (path.names[0] != "action" || len(path.names) > 1)
	case "principal", "resource":
		typ, _ := set.typeOf(path.root)
		return !l.fixed(p, typ, path.names[0])
	}
	return false
}

// escape asks how a forbid takes a change.
type escape struct {
	l     *linter
	p     *policy
	terms []*term
}

// candidates are the attributes on which the policy depends, the containing
// ones first, and those that give parents to principal and resource.
func (e *escape) candidates(set *setting) paths {
	var all paths
	for _, path := range e.p.facts.reads {
		for n := range path.names {
			all = with(all, attributePath{root: path.root, names: path.names[:n+1]})
		}
	}
	for _, root := range []string{"principal", "resource"} {
		typ, _ := set.typeOf(root)
		for _, rule := range e.l.b.config.parents[typ] {
			all = with(all, attributePath{root: root, names: []string{rule.attribute}})
		}
	}
	slices.SortFunc(all, shorter)
	return all
}

// tests reports whether the policy looks at the attribute itself.
func (e *escape) tests(path attributePath) bool {
	return slices.ContainsFunc(e.p.facts.reads, path.leadsTo)
}

// change is what a caller does: leave an attribute out, or send it with a value
// of another type.
type change struct {
	set     *setting
	path    attributePath
	retyped bool
}

// lost reports whether the policy can apply before the change and not after it.
func (e *escape) lost(c change) bool {
	all := pairOf(yes, yes)
	for _, t := range e.terms {
		all = all.with(e.termOutcomes(c, t), and)
	}
	return all.has(yes, no) || !c.retyped && e.l.b.config.ignoreForbidErrors && all.has(yes, err)
}

func (e *escape) termOutcomes(c change, t *term) termOutcomes {
	if t.op == opTest {
		return e.test(c, t.test)
	}
	args := make([]termOutcomes, len(t.args))
	for i, arg := range t.args {
		args[i] = e.termOutcomes(c, arg)
	}
	switch t.op {
	case opTrue:
		return pairOf(yes, yes)
	case opFalse:
		return pairOf(no, no)
	case opPath:
		return c.read(t.path)
	case opHas:
		return c.has(t.path)
	case opNot:
		return args[0].not()
	case opAnd:
		return args[0].with(args[1], and)
	case opOr:
		return args[0].with(args[1], or)
	case opIf:
		return choose(args[0], args[1], args[2])
	case opEqual, opContains:
		return compared(args)
	case opIsEmpty: // sent as a set of other elements it is as empty as it was
		return joinedOutcomes(args, false) | args[0].with(same, func(x, y termOutcome) termOutcome {
			if x == odd {
				return y
			}
			return x
		})
	case opIn:
		return joinedOutcomes(args, false) | e.loses(c, t.args[0], nil)
	}
	return joinedOutcomes(args, t.op == opBuild)
}

// compared is what == and contains come to: for a value of another type, or a
// set of such values, false and no error.
func compared(args []termOutcomes) (result termOutcomes) {
	for b1, a1 := range args[0].each {
		for b2, a2 := range args[1].each {
			if max(a1, a2) != odd {
				result |= joinedOutcomes([]termOutcomes{pairOf(b1, a1), pairOf(b2, a2)}, true)
			} else if max(b1, b2) != err {
				result |= pairsOf(anything, []termOutcome{no})
			}
		}
	}
	return result
}

// read is the value of a path.
func (c *change) read(path attributePath) termOutcomes {
	switch {
	case c.path.same(path) && c.retyped:
		return pairsOf(anything, []termOutcome{odd})
	case c.path.leadsTo(path):
		return pairsOf(anything, []termOutcome{err})
	case path.leadsTo(c.path) && (len(path.names) > 0 || path.root == "context"):
		return differs // the record that the attribute is in
	}
	return same
}

func (c *change) has(path attributePath) termOutcomes {
	switch {
	case path.same(c.path) && !c.retyped:
		return pairOf(yes, no)
	case path.leadsTo(c.path): // what is changed is there, and so is what it is in
		return pairOf(yes, yes)
	case c.path.leadsTo(path):
		return pairsOf(anything, []termOutcome{err})
	}
	return same
}

var variableNames = [variables]string{principalVar: "principal", actionVar: "action", resourceVar: "resource"}

// test is a test like those of a scope: types settle it, or parents that the
// change takes away, or nothing that is known here.
func (e *escape) test(c change, t scopeTest) termOutcomes {
	if settled := e.l.truth(c.set, t); settled != err {
		return pairOf(settled, settled)
	}
	if t.uids == nil || t.eq {
		return same
	}
	return same | e.loses(c, &term{op: opPath, path: attributePath{root: variableNames[t.of]}}, t.uids)
}

// loses is (yes, no) where the change takes away parents through which a
// variable can be in one of the groups; nil is any group.
func (e *escape) loses(c change, variable *term, groups []types.EntityUID) termOutcomes {
	typ, entity := c.set.typeOf(c.path.root)
	if variable.op != opPath || len(variable.path.names) > 0 || variable.path.root != c.path.root || c.retyped || !entity || len(c.path.names) > 1 {
		return 0
	}
	for _, rule := range e.l.b.config.parents[typ] {
		reaches := func(group types.EntityUID) bool {
			return group.Type == rule.parent || e.l.isAbove(e.p, group, rule.parent)
		}
		if rule.attribute == c.path.names[0] && (groups == nil || slices.ContainsFunc(groups, reaches)) {
			return pairOf(yes, no)
		}
	}
	return 0
}
