package lint

import (
	"cmp"
	"slices"

	"github.com/cedar-policy/cedar-go/types"

	"policy-service/pdp/internal/bundle"
)

// comparison says how the value at a path must compare with a literal that the policy writes.
type comparison struct {
	path    string
	literal types.Value
	want    relations
}

// relations is a set of ways in which a value can compare with a literal.
type relations uint8

const (
	less relations = 1 << iota
	equal
	greater
	unordered // a value that is neither, such as another text, or one of another type
)

// byOperator are the relations of which one holds if the operator is true. If an order is asked of a value that has none,
// the operator errs.
var byOperator = map[string]relations{
	"<": less, "<=": less | equal, ">": greater, ">=": greater | equal,
	"lessThan": less, "lessThanOrEqual": less | equal, "greaterThan": greater, "greaterThanOrEqual": greater | equal,
}

// flipped are the relations of the literal to the value.
func (r relations) flipped() relations {
	flipped := r & (equal | unordered)
	if r&less != 0 {
		flipped |= greater
	}
	if r&greater != 0 {
		flipped |= less
	}
	return flipped
}

// comparisonOf reads a condition that compares the value at a path with a literal. holds says whether the condition is
// true or false; in neither case it errs.
func comparisonOf(c bundle.Conjunct, holds bool) (comparison, bool) {
	t := c.Term()
	for t.Op == bundle.OpNot {
		t, holds = t.Args[0], !holds
	}
	want, ordered := byOperator[t.Name]
	switch {
	case len(t.Args) != 2:
		return comparison{}, false
	case t.Op == bundle.OpEqual:
		want = equal
	case !ordered || t.Op != bundle.OpOrder && t.Op != bundle.OpCall:
		return comparison{}, false
	}
	all := less | equal | greater
	if t.Op == bundle.OpEqual {
		all |= unordered
	}
	if !holds {
		want = all &^ want
	}
	of, with := t.Args[0], t.Args[1]
	if _, ok := of.Literal(); ok {
		of, with, want = with, of, want.flipped()
	}
	literal, ok := with.Literal()
	return comparison{of.Path.String(), literal, want}, ok && of.Op == bundle.OpPath && len(of.Path.Names) > 0
}

// excludes reports whether no value compares in both ways. The values that either wants are held against those below,
// between and above the two literals.
func (c comparison) excludes(other comparison) bool {
	if c.path != other.path {
		return false
	}
	if c.literal.Equal(other.literal) {
		return c.want&other.want == 0
	}
	order, ordered := compareValues(c.literal, other.literal)
	if !ordered { // a value equals at most one of them
		return c.want == equal && other.want == equal
	}
	lower, upper := c.want, other.want
	if order > 0 {
		lower, upper = upper, lower
	}
	for _, value := range [][2]relations{{less, less}, {equal, less}, {greater, less}, {greater, equal}, {greater, greater}, {unordered, unordered}} {
		if lower&value[0] != 0 && upper&value[1] != 0 {
			return false
		}
	}
	return true
}

// compareValues orders two literals, if they are of a type that has an order.
func compareValues(a, b types.Value) (order int, ok bool) {
	switch a := a.(type) {
	case types.Long:
		b, ok := b.(types.Long)
		return cmp.Compare(a, b), ok
	case types.Decimal:
		b, ok := b.(types.Decimal)
		return a.Compare(b), ok
	}
	return 0, false
}

// comparisonsExclude reports whether a value that two permits compare can satisfy only one of them.
func comparisonsExclude(s, other *scoped) bool {
	return slices.ContainsFunc(s.comparisons, func(c comparison) bool { return slices.ContainsFunc(other.comparisons, c.excludes) })
}
