package pdp

import (
	"maps"
	"slices"
	"strings"

	"policy-service/obligations"
	"policy-service/pdp/spelling"
)

// obligations warns of definitions that no answer can ever come with, and of
// permits by which an obligation is got round.
func (l *linter) obligations() {
	naming := map[*obligations.Definition][]*policy{}
	for _, name := range slices.Sorted(maps.Keys(l.b.views)) {
		v := l.b.views[name]
		for _, p := range v.policies {
			if p.tenant == v.tenant {
				l.misspelt(p)
				for _, d := range p.obliges {
					naming[d] = append(naming[d], p)
				}
			}
		}
	}
	l.produced(naming)
	for _, v := range l.b.views {
		l.overlaps(v)
	}
}

// misspelt warns of an annotation that was meant to be @obligation: Cedar takes
// any name, and the policy would oblige nobody.
func (l *linter) misspelt(p *policy) {
	for key := range p.cedar.Annotations() {
		name := strings.ToLower(string(key))
		if key != "obligation" && len(name) < 2*len("obligation") && spelling.Distance(name, "obligation") <= 2 {
			l.warn(p, "obligation_misspelt", "has the annotation @"+string(key)+", which obliges nobody", "write @obligation(\"…\"), or give the annotation a name less like it")
		}
	}
}

// produced warns of definitions that no policy names, or none that can apply. A
// name that is built in stands in no file, so that the policy is the place.
func (l *linter) produced(naming map[*obligations.Definition][]*policy) {
	for _, d := range l.definitions(naming) {
		by := naming[d.Definition]
		switch {
		case len(by) == 0:
			l.problems.warn(d.file, d.line, d.column, "obligation_unused", "no policy names the obligation "+quote(d.Name), "name it in an @obligation, or take it out")
		case !slices.ContainsFunc(by, func(p *policy) bool { return !l.never(p) }):
			if d.file == "" {
				d.file, d.line, d.column = by[0].file, by[0].line, by[0].column
			}
			l.problems.warn(d.file, d.line, d.column, "obligation_never_produced", "the obligation "+quote(d.Name)+" is named only by policies that can never apply, as "+quote(by[0].id)+" at "+by[0].position, "correct their scopes, or name it in a policy that applies")
		}
	}
}

// definitions are those of all files, each once, and the built-in ones that are
// named: of those every bundle has all.
func (l *linter) definitions(naming map[*obligations.Definition][]*policy) []definition {
	var all []definition
	seen := map[*obligations.Definition]bool{}
	for _, v := range l.b.views {
		for _, d := range v.obligations {
			if !seen[d.Definition] && (d.file != "" || len(naming[d.Definition]) > 0) {
				seen[d.Definition] = true
				all = append(all, d)
			}
		}
	}
	return all
}

// never reports whether a policy certainly applies to no request: its tests of
// one variable exclude each other, a clause is written out as false, or no
// combination of types admits it.
func (l *linter) never(p *policy) bool {
	tests := p.tests()
	for n, t := range tests {
		if t.uids != nil && len(t.uids) == 0 || t.of == actionVar && !l.possibleAction(t) || slices.ContainsFunc(tests[:n], t.excludes) {
			return true
		}
	}
	for _, t := range p.terms() {
		if neverTrue(t) {
			return true
		}
	}
	return len(l.settings(p)) == 0
}

// possibleAction reports whether the action of a request could be what a test
// wants; a group of actions may be of any type.
func (l *linter) possibleAction(t scopeTest) bool {
	typ := l.b.config.actionType
	return (t.is == "" || t.is == typ) && (!t.eq || t.uids[0].Type == typ)
}

// neverTrue reports whether a clause is false as it is written.
func neverTrue(t *term) bool {
	switch t.op {
	case opFalse:
		return true
	case opAnd:
		return slices.ContainsFunc(t.args, neverTrue)
	case opNot:
		return t.args[0].op == opTrue
	}
	return false
}
