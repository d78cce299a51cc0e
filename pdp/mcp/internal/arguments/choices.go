package arguments

import (
	"fmt"

	"policy-service/evaluation"
)

// choices are anyOf, oneOf, not and if.
func (c *checker) choices(n *node, v evaluation.Value, say bool, s *seen) bool {
	ok := true
	if n.any != nil {
		ok = c.someOf(n.any, v, say, s)
	}
	if n.one != nil && (ok || say) {
		ok = c.oneOf(n.one, v, say, s) && ok
	}
	if n.not != nil && (ok || say) && c.quietly(n.not, v, nil) {
		ok = c.wrong(say, "is what the schema excludes")
	}
	if n.when == nil || !ok && !say {
		return ok
	}
	then := n.when.then
	if !c.quietly(n.when.is, v, s) {
		then = n.when.otherwise
	}
	if then != nil {
		ok = c.inPlace(then, v, say, s) && ok
	}
	return ok
}

func (c *checker) someOf(all []*node, v evaluation.Value, say bool, s *seen) bool {
	some := false
	for _, n := range all {
		if c.inPlace(n, v, false, s) {
			if some = true; s == nil {
				break // otherwise the others have something to see as well
			}
		}
	}
	return some || c.noneOf(all, v, say, "anyOf")
}

func (c *checker) oneOf(all []*node, v evaluation.Value, say bool, s *seen) bool {
	own, fit := &seen{}, 0
	for _, n := range all {
		if c.inPlace(n, v, false, own) {
			if fit++; fit > 1 {
				return c.wrong(say, fmt.Sprintf("fits more than one of the %d forms that the schema lists in oneOf", len(all)))
			}
		}
	}
	if fit == 0 {
		return c.noneOf(all, v, say, "oneOf")
	}
	return s == nil || c.merge(s, own)
}

// noneOf says why a value fits none of several schemas: if one alone is for its type, by what is wrong with that.
func (c *checker) noneOf(all []*node, v evaluation.Value, say bool, keyword string) bool {
	if !say || c.left < 0 {
		return false
	}
	is := kindOf(v)
	var wanted kinds
	var of []*node
	for _, n := range all {
		takes := n.takes(mostChain)
		wanted |= takes
		if takes&is != 0 {
			of = append(of, n)
		}
	}
	switch len(of) {
	case 0:
		return c.wrong(true, wrongKind(is, wanted))
	case 1:
		return c.check(of[0], v, true, nil)
	}
	return c.wrong(true, fmt.Sprintf("fits none of the %d forms that the schema lists in %s", len(all), keyword))
}

const everyKind = isNull | isBoolean | isInteger | isNumber | isString | isArray | isObject

// takes are the types that a schema takes, also by way of references.
func (n *node) takes(chain int) kinds {
	takes := everyKind
	if n.kinds != 0 {
		if takes = n.kinds; takes&isNumber != 0 {
			takes |= isInteger
		}
	}
	for _, m := range n.all {
		if len(n.all) == 1 && chain > 0 {
			takes &= m.takes(chain - 1)
		}
	}
	return takes
}
