package lint

import (
	"slices"

	"policy-service/pdp/internal/bundle"
)

// missing warns of attributes that a permit reads without testing with has that they are
// there. If such an attribute is absent, the permit errs and does not count, and its author
// may not have thought of that. If there is a schema, cedar-go's strict validation already
// refuses such a read in each of the policy's environments. Then only attributes are left that
// the schema requires and bundle.yaml waives.
func (l *linter) missing(p *bundle.Policy, terms []*bundle.Term) {
	if l.b.Schema != nil && !l.b.Config.EvaluateUnknown {
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
			if path.Unsupplied() || l.missable(p, set, path) {
				found.add(path)
			}
		}
	}
	for _, path := range found {
		l.warnAt(placeOfPath(path), p, "permit_missing_attribute",
			"reads "+path.String()+" without has, and does not apply where that is absent",
			"ask first, as in `"+path.Asked()+" && …`, or "+l.howToEnsure(path),
		)
	}
}

// missable reports whether the attribute at a path can be absent when a permit reads the path
// without a test.
func (l *linter) missable(p *bundle.Policy, set *setting, path bundle.AttributePath) bool {
	if l.b.Schema != nil {
		typ, entity := set.typeOf(path.Root)
		return entity && l.waived(typ, path)
	}
	return l.optional(p, set, path)
}

// presence follows which attributes are known to be there, as the capabilities of Cedar's
// validator do. Unlike those, it does so for a term that is true and for one that is false:
// `!(x has a) || x.a` is as safe as `x has a && x.a`.
type presence struct {
	unsure paths // the paths that are read while nothing says that they are there
}

// walk returns the attributes that are there after the term, if it is true and if it is false.
func (w *presence) walk(t *bundle.Term, have paths) (ifTrue, ifFalse paths) {
	switch t.Op {
	case bundle.OpPath:
		have = w.read(t.Path, have)
	case bundle.OpHas:
		have = w.read(t.Path.Up(), have)
		return with(have, t.Path), have
	case bundle.OpNot:
		ifTrue, ifFalse = w.walk(t.Args[0], have)
		return ifFalse, ifTrue
	case bundle.OpAnd:
		leftTrue, leftFalse := w.walk(t.Args[0], have)
		ifTrue, rightFalse := w.walk(t.Args[1], leftTrue)
		return ifTrue, both(leftFalse, rightFalse)
	case bundle.OpOr:
		leftTrue, leftFalse := w.walk(t.Args[0], have)
		rightTrue, ifFalse := w.walk(t.Args[1], leftFalse)
		return both(leftTrue, rightTrue), ifFalse
	case bundle.OpIf:
		then, otherwise := w.walk(t.Args[0], have)
		thenTrue, thenFalse := w.walk(t.Args[1], then)
		elseTrue, elseFalse := w.walk(t.Args[2], otherwise)
		return both(thenTrue, elseTrue), both(thenFalse, elseFalse)
	default:
		for _, arg := range t.Args {
			have = both(w.walk(arg, have))
		}
	}
	return have, have
}

// read notes the parts of a path that may be absent. After the read all parts count as there,
// because otherwise evaluation has ended in an error.
func (w *presence) read(path bundle.AttributePath, have paths) paths {
	for n := range path.Names {
		part := bundle.AttributePath{Root: path.Root, Names: path.Names[:n+1]}
		if !slices.ContainsFunc(have, part.Same) {
			w.unsure = with(w.unsure, part)
			have = with(have, part)
		}
	}
	return have
}

// with returns have and one path more. Neither with nor both changes its arguments, because
// other branches use them too.
func with(have paths, path bundle.AttributePath) paths {
	if slices.ContainsFunc(have, path.Same) {
		return have
	}
	return append(slices.Clip(have), path)
}

// both returns the paths that are in a and in b.
func both(a, b paths) paths {
	var common paths
	for _, path := range a {
		if slices.ContainsFunc(b, path.Same) {
			common = append(common, path)
		}
	}
	return common
}
