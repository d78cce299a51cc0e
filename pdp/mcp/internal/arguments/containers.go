package arguments

import (
	"strconv"

	"policy-service/evaluation"
)

const unlisted = "is not a member that the schema lists"

// members holds an object against what a schema says of objects.
func (c *checker) members(r *members, o evaluation.Object, say bool, s *seen) bool {
	ok := true
	if r.count != (span{-1, -1}) {
		n := 0
		for range o.All {
			n++
		}
		ok = c.spend(1+n/perKey) && c.within(r.count, n, "members", say)
	}
	ok = c.present(r, o, say) && ok
	if !ok && !say {
		return false
	}
	for _, d := range r.dependent {
		if _, has := o.Lookup(d.member); has {
			ok = c.inPlace(d.node, o.Value(), say, s) && ok
		}
	}
	if s != nil && (r.properties != nil || r.patterns != nil) {
		s.lists = true
	}
	if r.properties == nil && r.patterns == nil && r.additional == nil && r.names == nil {
		return ok
	}
	for name, v := range o.All {
		if ok = c.member(r, name, v, say, s) && ok; !ok && !say || c.left < 0 {
			return false
		}
	}
	return ok
}

// present holds an object against the members that it must have.
func (c *checker) present(r *members, o evaluation.Object, say bool) bool {
	ok := c.spend(len(r.required)/4 + len(r.needs) + len(r.dependent))
	for _, name := range r.required {
		if _, has := o.Lookup(name); !has {
			if ok = c.wrong(say, "is missing", name); !say {
				return false
			}
		}
	}
	for _, n := range r.needs {
		if _, has := o.Lookup(n.member); !has || !c.spend(1+len(n.others)/perKey) {
			continue
		}
		for _, name := range n.others {
			if _, has := o.Lookup(name); !has {
				ok = c.wrong(say, "is missing: it must stand beside "+cut(shown(n.member), mostName), name)
			}
		}
	}
	return ok && c.left >= 0
}

func (c *checker) member(r *members, name string, v evaluation.Value, say bool, s *seen) bool {
	ok, evaluated := c.spend(1), false
	if n := r.properties[name]; n != nil {
		evaluated = true
		ok = c.below(name, n, v, say)
	}
	for _, p := range r.patterns {
		if c.matches(p.pattern, name) {
			evaluated = true
			ok = c.below(name, p.node, v, say) && ok
		}
	}
	if !evaluated && r.additional != nil {
		if evaluated = true; r.additional.never {
			ok = c.wrong(say, unlisted, name)
		} else {
			ok = c.below(name, r.additional, v, say) && ok
		}
	}
	if r.names != nil {
		text, err := evaluation.Text(name)
		if err != nil || !c.check(r.names, text, false, nil) {
			ok = c.wrong(say, "has a name that the schema does not allow in propertyNames", name)
		}
	}
	if evaluated && s != nil {
		s.name(name)
	}
	return ok
}

// items holds an array against what a schema says of arrays.
func (c *checker) items(r *items, v evaluation.Value, say bool, s *seen) bool {
	ok := c.within(r.count, v.Len(), "elements", say)
	if r.unique && (ok || say) {
		ok = c.unique(v, say) && ok
	}
	for i, e := range v.Elements {
		n := r.rest
		if i < len(r.prefix) {
			n = r.prefix[i]
		}
		if n == nil {
			break // there are no more
		}
		if ok = c.below(strconv.Itoa(i), n, e, say) && ok; !ok && !say || c.left < 0 {
			return false
		}
		if s != nil {
			s.element(i)
		}
	}
	if r.contains != nil && (ok || say) {
		ok = c.contains(r, v, say, s) && ok
	}
	return ok
}

func (c *checker) contains(r *items, v evaluation.Value, say bool, s *seen) bool {
	n := 0
	for i, e := range v.Elements {
		if !c.quietly(r.contains, e, nil) {
			continue
		}
		if n++; s != nil && r.marks {
			s.element(i)
		}
	}
	return c.within(r.matches, n, "elements that fit contains", say)
}

func (c *checker) unique(v evaluation.Value, say bool) bool {
	keys := make(keys, v.Len())
	for i, e := range v.Elements {
		key := keyOf(e)
		if !c.spend(1 + len(key)/perKey) {
			return false
		}
		if keys[key] {
			return c.wrong(say, "is equal to another element, and must not be", strconv.Itoa(i))
		}
		keys[key] = true
	}
	return true
}
