package pdp

import (
	"slices"
)

// missing warns of attributes that a permit reads without having asked for them:
// where one is absent the permit errs, and so does not count, which its author
// may not have thought of. With a schema the question does not arise: cedar-go's
// strict validation refuses such a read, for each of the policy's environments, but
// where bundle.yaml waives what the schema requires.
func (l *linter) missing(p *policy, terms []*term) {
	if l.b.schema != nil && !l.b.config.evaluateUnknown {
		return
	}
	w := presence{}
	var have paths
	for _, t := range terms {
		have, _ = w.walk(t, have)
	}
	var found paths
	for _, set := range l.settings(p) {
		for _, path := range w.unsure {
			if path.unsupplied() || l.missable(p, set, path) {
				found.add(path)
			}
		}
	}
	for _, path := range found {
		l.warn(p, "permit_missing_attribute", "reads "+path.String()+" without has, and does not apply where that is absent", "ask first, as in `"+path.asked()+" && …`, or "+l.ensured(path))
	}
}

// missable reports whether a permit can find nothing at a path that it reads without
// having asked.
func (l *linter) missable(p *policy, set *setting, path attributePath) bool {
	if l.b.schema != nil {
		typ, entity := set.typeOf(path.root)
		return entity && l.waived(typ, path)
	}
	return l.optional(p, set, path)
}

// presence follows which attributes are known to be there, as the capabilities
// of Cedar's validator do, but for both termOutcomes of a term: `!(x has a) || x.a`
// is as safe as `x has a && x.a`.
type presence struct {
	unsure paths // read while nothing said that they are there
}

// walk returns what is known after the term where it is true, and where false.
func (w *presence) walk(t *term, have paths) (ifTrue, ifFalse paths) {
	switch t.op {
	case opPath:
		have = w.read(t.path, have)
	case opHas:
		have = w.read(t.path.up(), have)
		return with(have, t.path), have
	case opNot:
		ifTrue, ifFalse = w.walk(t.args[0], have)
		return ifFalse, ifTrue
	case opAnd:
		leftTrue, leftFalse := w.walk(t.args[0], have)
		ifTrue, rightFalse := w.walk(t.args[1], leftTrue)
		return ifTrue, both(leftFalse, rightFalse)
	case opOr:
		leftTrue, leftFalse := w.walk(t.args[0], have)
		rightTrue, ifFalse := w.walk(t.args[1], leftFalse)
		return both(leftTrue, rightTrue), ifFalse
	case opIf:
		then, otherwise := w.walk(t.args[0], have)
		thenTrue, thenFalse := w.walk(t.args[1], then)
		elseTrue, elseFalse := w.walk(t.args[2], otherwise)
		return both(thenTrue, elseTrue), both(thenFalse, elseFalse)
	default:
		for _, arg := range t.args {
			have = both(w.walk(arg, have))
		}
	}
	return have, have
}

// read notes the parts of a path that may be absent. After the read all of them
// are there: otherwise evaluation has ended in an error.
func (w *presence) read(path attributePath, have paths) paths {
	for n := range path.names {
		part := attributePath{root: path.root, names: path.names[:n+1]}
		if !slices.ContainsFunc(have, part.same) {
			w.unsure = with(w.unsure, part)
			have = with(have, part)
		}
	}
	return have
}

// with and both leave what they are given as it is: it is known on other
// branches too.
func with(have paths, path attributePath) paths {
	if slices.ContainsFunc(have, path.same) {
		return have
	}
	return append(slices.Clip(have), path)
}

func both(a, b paths) paths {
	var common paths
	for _, path := range a {
		if slices.ContainsFunc(b, path.same) {
			common = append(common, path)
		}
	}
	return common
}
