package arguments

import (
	"strconv"

	"policy-service/evaluation"
)

// seen is which members or elements of a value schemas have evaluated.
type seen struct {
	names    map[string]bool
	elements map[int]bool
	// lists says that a schema lists members.
	lists bool
}

func (s *seen) name(name string) {
	if s.names == nil {
		s.names = map[string]bool{}
	}
	s.names[name] = true
}

func (s *seen) element(i int) {
	if s.elements == nil {
		s.elements = map[int]bool{}
	}
	s.elements[i] = true
}

// merge adds what another schema of the same place has seen. It is false if there are no steps left.
func (c *checker) merge(s, more *seen) bool {
	s.lists = s.lists || more.lists
	for name := range more.names {
		s.name(name)
	}
	for i := range more.elements {
		s.element(i)
	}
	return c.spend((len(more.names) + len(more.elements)) / 4)
}

// looksBack reports whether a schema wants to know what was evaluated.
func (n *node) looksBack() bool {
	return n.of != nil && n.of.unevaluated != nil || n.items != nil && n.items.unevaluated != nil
}

// unevaluated holds what no other schema of this place has evaluated against the one for that.
func (c *checker) unevaluated(n *node, v evaluation.Value, say bool, s *seen) bool {
	ok := true
	switch {
	case v.Kind() == evaluation.Map && n.of != nil && n.of.unevaluated != nil:
		for name, m := range v.Object().All {
			switch {
			case s.names[name]:
			case n.of.unevaluated.never:
				ok = c.wrong(say, unlisted, name)
			default:
				ok = c.below(name, n.of.unevaluated, m, say) && ok
			}
			s.name(name)
			if !ok && !say || !c.spend(1) {
				return false
			}
		}
	case v.Kind() == evaluation.Array && n.items != nil && n.items.unevaluated != nil:
		for i, e := range v.Elements {
			if !s.elements[i] {
				ok = c.below(strconv.Itoa(i), n.items.unevaluated, e, say) && ok
			}
			s.element(i)
			if !ok && !say || !c.spend(1) {
				return false
			}
		}
	}
	return ok
}
