package capability

import (
	"fmt"
	"slices"
	"strings"

	"policy-service/evaluation"
)

// Constraint says which values an argument may have. The zero Constraint admits none.
type Constraint struct {
	kind     string
	values   []evaluation.Value // of exact and prefix one; of one_of all
	min, max bound
	written  evaluation.Value
}

// bound is one end of a range.
type bound struct {
	value     evaluation.Value // Null where the range has no such end
	exclusive bool
}

// The kinds of a [Constraint]. They are those of the draft Attenuating Authorization Tokens, and prefix.
const (
	exact    = "exact"
	oneOf    = "one_of"
	between  = "range"
	prefix   = "prefix"
	wildcard = "wildcard"
)

// ParseConstraint reads a constraint: an object with the member constraint_type, or any other value, which has to be
// met exactly. To pin an object that has that member, write it as the value of exact. An unknown type or member is an
// error.
//
//	{"constraint_type": "exact", "value": …}          the same JSON: 1 and 1.0 are, and members may come in any order
//	{"constraint_type": "one_of", "values": […]}      the same JSON as one of them
//	{"constraint_type": "range", "min": 1, "max": 9}  a number, compared exactly; min_inclusive, max_inclusive may be false
//	{"constraint_type": "prefix", "value": "a/"}      a string that begins with these very bytes
//	{"constraint_type": "wildcard"}                   any value, null too
func ParseConstraint(v evaluation.Value) (Constraint, error) {
	var r reader
	if c := r.constraint(v); r.err == nil {
		return c, nil
	}
	return Constraint{}, r.err
}

func (r *reader) constraint(v evaluation.Value, at ...string) (c Constraint) {
	kind, typed := v.Object().Lookup("constraint_type")
	if !typed {
		o, _ := evaluation.ParseWithNulls(fmt.Appendf(nil, `{"constraint_type":"exact","value":%s}`, text(v)), boundless)
		return Constraint{kind: exact, values: []evaluation.Value{r.shallow(v, at...)}, written: o.Value()}
	}
	o := v.Object()
	c.kind, c.written = kind.Text(), v
	switch c.kind {
	case exact, prefix:
		r.only(o, at, "constraint_type", "value")
		value, there := o.Lookup("value")
		r.want(there, "missing", in(at, "value")...)
		r.want(c.kind != prefix || value.Text() != "" && value.Kind() == evaluation.String, "not a string, or an empty one, which all strings begin with", in(at, "value")...)
		c.values = []evaluation.Value{r.shallow(value, in(at, "value")...)}
	case oneOf:
		r.only(o, at, "constraint_type", "values")
		for place, value := range r.list(o, maxValues, in(at, "values")...) {
			c.values = append(c.values, r.shallow(value, place...))
		}
	case between:
		r.only(o, at, "constraint_type", "min", "max", "min_inclusive", "max_inclusive")
		c.min, c.max = r.bound(o, "min", at), r.bound(o, "max", at)
		min, bounded := decimalOf(c.min.value)
		max, both := decimalOf(c.max.value)
		r.want(bounded || both, "a range without min and max", at...)
		r.want(!bounded || !both || min.compare(max) <= 0, "min is greater than max", at...)
	case wildcard:
		r.only(o, at, "constraint_type")
	default:
		r.want(false, fmt.Sprintf("not one of the constraints %q", []string{exact, oneOf, between, prefix, wildcard}), in(at, "constraint_type")...)
	}
	return c
}

// bound reads an end of a range.
func (r *reader) bound(o evaluation.Object, name string, at []string) (b bound) {
	value, there := o.Lookup(name)
	_, ok := decimalOf(value)
	r.want(ok || !there, "not a number, or one with an exponent that is out of all bounds", in(at, name)...)
	inclusive, said := o.Lookup(name + "_inclusive")
	r.want(!said || there && inclusive.Kind() == evaluation.Bool, "not true or false, or there is no "+name+" that it speaks of", in(at, name+"_inclusive")...)
	return bound{value, said && !inclusive.True()}
}

// shallow wants a value that does not nest too deep.
func (r *reader) shallow(v evaluation.Value, at ...string) evaluation.Value {
	r.want(depth(v) <= maxNested, fmt.Sprintf("the value of a constraint nests more than %d deep", maxNested), at...)
	return v
}

func depth(v evaluation.Value) (deepest int) {
	for _, e := range v.Elements {
		deepest = max(deepest, depth(e))
	}
	for _, e := range v.Object().All {
		deepest = max(deepest, depth(e))
	}
	if v.Kind() >= evaluation.Array {
		deepest++
	}
	return deepest
}

// Kind is the constraint_type.
func (c Constraint) Kind() string { return c.kind }

// ScalarExact is the one value that the constraint admits, if it is neither null nor an object nor an array.
func (c Constraint) ScalarExact() (evaluation.Value, bool) {
	if c.kind != exact || c.values[0].Kind() == evaluation.Null || c.values[0].Kind() >= evaluation.Array {
		return evaluation.Value{}, false
	}
	return c.values[0], true
}

// Holds reports whether a value is one that the constraint admits.
func (c Constraint) Holds(v evaluation.Value) bool {
	switch c.kind {
	case exact, oneOf:
		return slices.ContainsFunc(c.values, func(one evaluation.Value) bool { return same(one, v) })
	case prefix:
		return v.Kind() == evaluation.String && strings.HasPrefix(v.Text(), c.values[0].Text())
	case between:
		n, ok := decimalOf(v)
		return ok && c.min.admits(n, -1) && c.max.admits(n, 1)
	}
	return c.kind == wildcard
}

// admits reports whether a number is on the inner side of the end, whose outer side is -1 or 1.
func (b bound) admits(n decimal, outside int) bool {
	end, there := decimalOf(b.value)
	by := n.compare(end)
	return !there || by == -outside || by == 0 && !b.exclusive
}

// Value is the constraint as ParseConstraint reads it, always with its constraint_type.
func (c Constraint) Value() evaluation.Value { return c.written }

// MarshalJSON writes [Constraint.Value]. The zero Constraint has a text that no reader takes.
func (c Constraint) MarshalJSON() ([]byte, error) {
	if c.kind == "" {
		return []byte(`{"constraint_type":""}`), nil
	}
	return c.written.MarshalJSON()
}
