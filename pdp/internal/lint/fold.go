package lint

import (
	"slices"

	"policy-service/pdp/internal/bundle"
)

// results are what a condition can come to, as far as its text says: a set of outcomeTrue, outcomeFalse and outcomeError.
// What is not in the set is excluded by the operators, and never because no request was found.
type results uint8

const (
	mayBeTrue  results = 1 << outcomeTrue
	mayBeFalse results = 1 << outcomeFalse
	mayErr     results = 1 << outcomeError
)

// fold finds what a condition can come to.
func fold(t *bundle.Term) results {
	switch t.Op {
	case bundle.OpTrue:
		return mayBeTrue
	case bundle.OpFalse:
		return mayBeFalse
	case bundle.OpTest: // it needs only the types, ids and parents that every request has
		return mayBeTrue | mayBeFalse
	case bundle.OpHas:
		if len(t.Path.Names) == 1 {
			return mayBeTrue | mayBeFalse
		}
	case bundle.OpNot:
		return fold(t.Args[0]).not()
	case bundle.OpAnd:
		return fold(t.Args[0]).and(fold(t.Args[1]))
	case bundle.OpOr:
		return fold(t.Args[0]).not().and(fold(t.Args[1]).not()).not()
	case bundle.OpIf:
		return fold(t.Args[0]).choose(fold(t.Args[1]), fold(t.Args[2]))
	case bundle.OpEqual:
		switch {
		case slices.ContainsFunc(t.Args, errs):
		case alike(t.Args[0], t.Args[1]):
			return mayBeTrue
		case !t.IsWritten():
			return mayBeTrue | mayBeFalse
		}
	case bundle.OpIn:
		if len(t.Args) == 2 && isEntity(t.Args[0]) && alike(t.Args[0], t.Args[1]) { // each entity is in itself
			return mayBeTrue
		}
	}
	switch holds, ok := t.Written(); {
	case ok && holds:
		return mayBeTrue
	case ok:
		return mayBeFalse
	case t.IsWritten(): // no truth value is an error, too
		return mayErr
	}
	return mayBeTrue | mayBeFalse | mayErr
}

func (r results) not() results {
	not := r & mayErr
	if r&mayBeTrue != 0 {
		not |= mayBeFalse
	}
	if r&mayBeFalse != 0 {
		not |= mayBeTrue
	}
	return not
}

func (r results) and(right results) results {
	return r.choose(right, mayBeFalse)
}

// choose is what an if-then-else comes to. A branch that errs, or is no truth value, is an error.
func (r results) choose(then, otherwise results) results {
	all := r & mayErr
	if r&mayBeTrue != 0 {
		all |= then
	}
	if r&mayBeFalse != 0 {
		all |= otherwise
	}
	return all
}

// errs reports whether a term of any type may err. A variable is always there, and so is what the PDP supplies.
func errs(t *bundle.Term) bool {
	switch t.Op {
	case bundle.OpValue:
		return false
	case bundle.OpPath:
		supplied := t.Path.Root == "context" && len(t.Path.Names) > 0 && t.Path.Names[0] == "pdp" && !t.Path.Unsupplied()
		return len(t.Path.Names) > 0 && !supplied
	case bundle.OpBuild:
		return slices.ContainsFunc(t.Args, errs)
	}
	return fold(t)&mayErr != 0
}

// alike reports whether two terms are one and the same expression.
func alike(a, b *bundle.Term) bool {
	if a.Op != b.Op || len(a.Args) != len(b.Args) {
		return false
	}
	switch a.Op {
	case bundle.OpPath, bundle.OpHas:
		return a.Path.Same(b.Path)
	case bundle.OpTest:
		return a.Test.Key() == b.Test.Key()
	case bundle.OpValue:
		return a.Value.Equal(b.Value)
	case bundle.OpTrue, bundle.OpFalse, bundle.OpNot, bundle.OpAnd, bundle.OpOr, bundle.OpIf, bundle.OpEqual:
		for n := range a.Args {
			if !alike(a.Args[n], b.Args[n]) {
				return false
			}
		}
		return true
	}
	return false // terms do not tell enough of it
}

func isEntity(t *bundle.Term) bool {
	return t.Op == bundle.OpPath && len(t.Path.Names) == 0 && t.Path.Root != "context"
}

// neverTrue reports whether a condition holds in no request: it is false, or errs.
func neverTrue(t *bundle.Term) bool { return fold(t)&mayBeTrue == 0 }
