package arguments

import (
	"fmt"
	"unicode/utf8"

	"policy-service/evaluation"
)

// checker holds one value against a schema. Its bounds are in steps: a schema for a value is one, and so is what takes as long.
type checker struct {
	left     int // steps, less than zero if they were not enough
	depth    int
	closed   bool
	path     []string
	problems []Problem
}

const (
	mostSteps = 1 << 20
	mostDepth = 10_000 // schemas within schemas, which is a bound on the stack
	// perKey is how many bytes of a value that is compared are one step.
	perKey = 16
)

// spend takes steps. If there are not enough of them it is false, and all that follows is for nothing.
func (c *checker) spend(steps int) bool {
	if c.left >= 0 {
		c.left -= steps
	}
	return c.left >= 0
}

// enter holds a value against the schema of its place. In a closed schema, its members are then those that are listed.
func (c *checker) enter(n *node, v evaluation.Value, say bool) bool {
	if !c.closed || v.Kind() != evaluation.Map {
		return c.check(n, v, say, nil)
	}
	s := &seen{}
	if !c.check(n, v, say, s) {
		return false
	}
	if !s.lists && len(c.path) > 0 {
		return true
	}
	return c.noOthers(v, s, say)
}

func (c *checker) noOthers(v evaluation.Value, s *seen, say bool) bool {
	ok := true
	for name := range v.Object().All {
		if !c.spend(1) {
			return false
		}
		if !s.names[name] {
			ok = c.wrong(say, unlisted, name)
		}
	}
	return ok
}

// below holds a member or element against a schema.
func (c *checker) below(token string, n *node, v evaluation.Value, say bool) bool {
	c.path = append(c.path, token)
	ok := c.enter(n, v, say)
	c.path = c.path[:len(c.path)-1]
	return ok
}

// quietly finds out whether a value fits a schema, where it may do so or not. Nothing is closed there: that would open what
// is excluded.
func (c *checker) quietly(n *node, v evaluation.Value, s *seen) bool {
	closed := c.closed
	c.closed = false
	ok := c.inPlace(n, v, false, s)
	c.closed = closed
	return ok
}

// inPlace holds a value against another schema of its place. What that has seen counts if it fits.
func (c *checker) inPlace(n *node, v evaluation.Value, say bool, s *seen) bool {
	if s == nil {
		return c.check(n, v, say, nil)
	}
	own := &seen{}
	if !c.check(n, v, say, own) {
		return false
	}
	return c.merge(s, own)
}

// check holds a value against a schema. If say is set, problems are told, and otherwise it ends with the first. S takes what
// was evaluated, unless it is nil.
func (c *checker) check(n *node, v evaluation.Value, say bool, s *seen) bool {
	if c.depth > mostDepth {
		c.left = -1
	}
	if !c.spend(1) {
		return false
	}
	if n.never {
		return c.wrong(say, "is not allowed")
	}
	say = say && len(c.problems) < mostProblems
	c.depth++
	defer func() { c.depth-- }()
	own := s
	if s == nil && n.looksBack() {
		own = &seen{}
	}
	if !c.value(n, v, say) { // of what is something else, nothing else is worth saying
		return false
	}
	ok := true
	for _, m := range n.all {
		if ok = c.inPlace(m, v, say, own) && ok; !ok && !say {
			return false
		}
	}
	if ok = c.inside(n, v, say, own) && ok; !ok && !say {
		return false
	}
	if ok = c.choices(n, v, say, own) && ok; !ok {
		return false
	}
	return c.unevaluated(n, v, say, own)
}

// wrong is false, and says why if somebody is to know.
func (c *checker) wrong(say bool, detail string, below ...string) bool {
	if say {
		c.problem(detail, below...)
	}
	return false
}

// value is type, const and enum.
func (c *checker) value(n *node, v evaluation.Value, say bool) bool {
	if v.Kind() == evaluation.Number && !c.spend(len(v.Text())/perKey) {
		return false
	}
	if n.kinds != 0 {
		if is := kindOf(v); is&n.kinds == 0 {
			return c.wrong(say, wrongKind(is, n.kinds))
		}
	}
	if n.exact == nil && n.only == nil {
		return true
	}
	key := keyOf(v)
	switch {
	case !c.spend(len(key) / perKey):
		return false
	case n.exact != nil && *n.exact != key:
		return c.wrong(say, "must be the value that the schema has as const")
	case n.only != nil && !n.only[key]:
		return c.wrong(say, "must be one of the values that the schema lists in enum")
	}
	return true
}

// inside is what a schema says of a value of one type.
func (c *checker) inside(n *node, v evaluation.Value, say bool, s *seen) bool {
	switch {
	case v.Kind() == evaluation.Map && n.of != nil:
		return c.members(n.of, v.Object(), say, s)
	case v.Kind() == evaluation.Array && n.items != nil:
		return c.items(n.items, v, say, s)
	case v.Kind() == evaluation.String && n.texts != nil:
		return c.text(n.texts, v.Text(), say)
	case v.Kind() == evaluation.Number && n.size != nil:
		return c.number(n.size, v.Text(), say)
	}
	return true
}

func (c *checker) text(t *texts, text string, say bool) bool {
	ok := true
	if t.length != (span{-1, -1}) {
		ok = c.spend(1+len(text)/perStep) && c.within(t.length, utf8.RuneCountInString(text), "characters", say)
	}
	if t.pattern != nil && (ok || say) && !c.matches(t.pattern, text) {
		ok = c.wrong(say, "must match the pattern of the schema")
	}
	return ok
}

func (c *checker) number(n *numbers, text string, say bool) bool {
	is, ok := readNumber(text)
	if !ok || len(is.digits) > mostDigits {
		return c.wrong(say, "is a number that is too long to be compared")
	}
	for _, rule := range []struct {
		bound  *bound
		fits   func(order int) bool
		wanted string
	}{
		{n.least, func(o int) bool { return o >= 0 }, "must be at least"}, {n.most, func(o int) bool { return o <= 0 }, "must be at most"},
		{n.above, func(o int) bool { return o > 0 }, "must be more than"}, {n.below, func(o int) bool { return o < 0 }, "must be less than"},
	} {
		if rule.bound != nil && !rule.fits(is.compare(rule.bound.number)) {
			ok = c.wrong(say, rule.wanted+" "+cut(rule.bound.text, mostName))
		}
	}
	if n.multiple != nil && !is.isMultiple(n.multiple.number) {
		ok = c.wrong(say, "must be a multiple of "+cut(n.multiple.text, mostName))
	}
	return ok
}

// within holds how many there are against how many there may be.
func (c *checker) within(s span, is int, of string, say bool) bool {
	switch {
	case s.least >= 0 && is < s.least:
		return c.wrong(say, fmt.Sprintf("has too few %s: at least %d", of, s.least))
	case s.most >= 0 && is > s.most:
		return c.wrong(say, fmt.Sprintf("has too many %s: at most %d", of, s.most))
	}
	return true
}
