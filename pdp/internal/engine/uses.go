package engine

import (
	"slices"

	"policy-service/pdp/internal/bundle"
)

// use is one way in which a condition uses the value at a path.
type use struct {
	path bundle.AttributePath // without a root if it is read from something that is no path
	how  how
	with []*bundle.Term // what it is compared with, or sought in it: literals and paths
}

// how says what a condition asks of a value. Every way but asValue can only tell the value from
// those that it is compared with.
type how uint8

const (
	asValue   how = iota
	tested        // has
	asTruth       // it is a condition by itself
	equals        // == and !=, or whether it is among others
	ordered       // <, <=, > and >=
	alike         // like
	contained     // whether others are among its elements; with no others, whether it has any
	reckoned      // it is in a sum, difference or product, in a comparison
)

// usesOf are the uses in a condition.
func usesOf(t *bundle.Term) []use {
	var u usage
	u.term(t, asTruth)
	return u.all
}

// usesOfPolicy are the uses in all conditions of a policy.
func usesOfPolicy(p *bundle.Policy) []use {
	var u usage
	for _, t := range p.Terms() {
		u.term(t, asTruth)
	}
	return u.all
}

type usage struct{ all []use }

func (u *usage) add(path bundle.AttributePath, how how, with ...*bundle.Term) {
	if len(path.Names) > 0 || path.Root == "context" { // the other variables alone are names
		u.all = append(u.all, use{path, how, with})
	}
}

// term gathers the uses in a term whose own value is used like that.
func (u *usage) term(t *bundle.Term, how how, with ...*bundle.Term) {
	switch t.Op {
	case bundle.OpPath:
		u.add(t.Path, how, with...)
	case bundle.OpHas:
		u.add(t.Path, tested)
	case bundle.OpRead:
		u.add(t.Path, asValue)
		u.each(t.Args, asValue)
	case bundle.OpNot, bundle.OpAnd, bundle.OpOr:
		u.each(t.Args, asTruth)
	case bundle.OpIf:
		u.term(t.Args[0], asTruth)
		u.each(t.Args[1:], how)
	case bundle.OpEqual:
		u.compared(t, t.Args[0], t.Args[1], equals)
		u.compared(t, t.Args[1], t.Args[0], equals)
	case bundle.OpOrder:
		u.compared(t, t.Args[0], t.Args[1], ordered)
		u.compared(t, t.Args[1], t.Args[0], ordered)
	case bundle.OpLike:
		u.term(t.Args[0], alike, t)
	case bundle.OpContains:
		u.compared(t, t.Args[0], t.Args[1], contained)
		u.compared(t, t.Args[1], t.Args[0], equals)
	case bundle.OpIsEmpty:
		u.term(t.Args[0], contained)
	case bundle.OpAdd, bundle.OpSubtract, bundle.OpMultiply, bundle.OpNegate:
		if how != reckoned {
			with, how = nil, asValue
		}
		for _, part := range t.Args {
			u.term(part, how, with...)
		}
	case bundle.OpTest, bundle.OpValue, bundle.OpTrue, bundle.OpFalse:
	case bundle.OpBuild:
		elements := equals // with what the set is compared with, or what is sought in it
		if how != equals && how != contained {
			elements, with = asValue, nil
		}
		for _, e := range t.Args {
			u.term(e, elements, with...)
		}
	default:
		u.each(t.Args, asValue)
	}
}

func (u *usage) each(all []*bundle.Term, how how) {
	if how != asTruth {
		how = asValue
	}
	for _, t := range all {
		u.term(t, how)
	}
}

// compared gathers the uses in an operand that is compared with another. The two are the operands of
// the term whole.
func (u *usage) compared(whole, t, other *bundle.Term, how how) {
	if whole.Op != bundle.OpContains && (reckons(t) || reckons(other) && t.Op == bundle.OpPath) {
		u.term(t, reckoned, whole)
		return
	}
	with, plain := operands(other, nil)
	if !plain {
		how, with = asValue, nil
	}
	u.term(t, how, with...)
}

// reckons reports whether a term is a sum, a difference or a product.
func reckons(t *bundle.Term) bool {
	return bundle.OpAdd <= t.Op && t.Op <= bundle.OpNegate
}

// operands are the literals and paths in an operand. It reports false if there is anything else in
// it, such as a sum.
func operands(t *bundle.Term, to []*bundle.Term) ([]*bundle.Term, bool) {
	switch t.Op {
	case bundle.OpPath, bundle.OpValue, bundle.OpTrue, bundle.OpFalse:
		return append(to, t), true
	case bundle.OpBuild:
		to = append(to, t)
		plain := !slices.ContainsFunc(t.Args, func(e *bundle.Term) bool {
			var ok bool
			to, ok = operands(e, to)
			return !ok
		})
		return to, plain
	}
	return nil, false
}
