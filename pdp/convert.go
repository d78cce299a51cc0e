package pdp

import (
	"slices"
	"strconv"

	"github.com/cedar-policy/cedar-go/types"

	"policy-service/evaluation"
)

// merger turns members of a request into attributes, one at a time.
type merger struct {
	members  types.RecordMap
	declared map[string]attributeShape
	typed    bool // there is a schema, and declared is what it says
	config   *config
	// lenient leaves an optional member out whose type does not hold the value. Who asks
	// for an approval may be a person or an agent, and Cedar has no type for either.
	lenient bool
	origins
	mismatch bool
}

// newMerger merges into members, which are attributes of what declares them: a type
// or an action, or nothing where there is no such declaration.
func newMerger(b *Bundle, members types.RecordMap, declared map[string]attributeShape) merger {
	return merger{members: members, declared: declared, typed: b.schema != nil, config: &b.config}
}

// origins remembers what became of members that are not simply there.
type origins struct {
	unusable, dropped []string
}

// take converts one member, which stands in the request at the path followed
// by its name; action.properties, which as a whole is one member, at the path.
func (m *merger) take(name string, value evaluation.Value, path ...string) error {
	a, declared := m.declared[name]
	if !m.typed && !declared {
		v, ok := untyped(value)
		if !ok {
			m.unusable = append(m.unusable, name)
			delete(m.members, types.String(name))
			return nil
		}
		m.members[types.String(name)] = v
		return nil
	}
	if path[0] != "action" {
		path = append(path, name)
	}
	// What nobody declared is no place to find unknown members in: it is a mismatch.
	c := converter{config: m.config, reject: m.config.rejectUnknown && m.declared != nil}
	if !declared {
		m.dropped = append(m.dropped, name)
		delete(m.members, types.String(name))
		if c.reject {
			return undeclaredAt(path)
		}
		return nil
	}
	v, fits := c.convert(value, a.shape)
	switch {
	case c.fault.undeclared:
		return undeclaredAt(c.fault.below(path))
	case fits:
		m.members[types.String(name)] = v
	case m.lenient && a.optional:
		delete(m.members, types.String(name))
		c.dropped = true
	default:
		m.mismatch = true
	}
	if c.dropped {
		m.dropped = append(m.dropped, name)
	}
	return nil
}

// knows reports whether a member can be there: a schema drops what it does not declare.
func (m *merger) knows(name string) bool {
	_, declared := m.declared[name]
	return declared || !m.typed
}

// piece is what happened, besides the members.
func (m *merger) piece() piece {
	p := piece{unusable: m.unusable}
	if m.mismatch {
		p.refuse(evaluation.SchemaMismatch)
	}
	return p
}

// untyped converts a value that no schema types. It never guesses a type from a
// value: a string that looks like a date is a string, and a number that is not
// integral has no type at all.
func untyped(v evaluation.Value) (types.Value, bool) {
	switch v.Kind() {
	case evaluation.Bool:
		return types.Boolean(v.True()), true
	case evaluation.String:
		return types.String(v.Text()), true
	case evaluation.Number:
		n, ok := v.Scaled(0)
		return types.Long(n), ok
	case evaluation.Array:
		elements := make([]types.Value, 0, v.Len())
		for _, e := range v.Elements {
			c, ok := untyped(e)
			if !ok {
				return nil, false
			}
			elements = append(elements, c)
		}
		return newSet(elements)
	case evaluation.Map:
		members := make(types.RecordMap, v.Len())
		for name, e := range v.Object().Members {
			c, ok := untyped(e)
			if !ok {
				return nil, false
			}
			members[types.String(name)] = c
		}
		return types.NewRecord(members), true
	}
	return nil, false // null, which only an array can hold
}

func undeclaredAt(path []string) error {
	return evaluation.Malformed("the schema does not declare this member", "leave it out, or have it declared", path...)
}

// converter converts as a schema says.
type converter struct {
	config  *config
	reject  bool // what is not declared is malformed
	dropped bool
	fault   misfit // where something does not fit
}

// misfit is why a value does not fit, and where below the value that was converted.
type misfit struct {
	undeclared bool             // a member that is not declared
	want       *shape           // nil where a required member is missing
	got        evaluation.Value // what was sent in its place
	at         []string         // the innermost name first
	name       string           // as the policies name it
}

// below is the place of the fault in a request, where the value stands at the path.
func (f *misfit) below(path []string) []string {
	path = slices.Clone(path)
	for _, name := range slices.Backward(f.at) {
		path = append(path, name)
	}
	return path
}

// fail notes what does not fit.
func (c *converter) fail(v evaluation.Value, s *shape) (types.Value, bool) {
	c.fault = misfit{want: s, got: v}
	return nil, false
}

// in notes what the place of a fault is in.
func (c *converter) in(token, name string) (types.Value, bool) {
	c.fault.at, c.fault.name = append(c.fault.at, token), name+c.fault.name
	return nil, false
}

// convert converts a value. Where it does not fit, fault says why.
func (c *converter) convert(v evaluation.Value, s *shape) (types.Value, bool) {
	switch s.form {
	case shapeSet:
		return c.set(v, s)
	case shapeRecord:
		return c.record(v, s)
	}
	t, fits := c.scalar(v, s)
	if !fits {
		return c.fail(v, s)
	}
	return t, true
}

func (c *converter) set(v evaluation.Value, s *shape) (types.Value, bool) {
	if v.Kind() != evaluation.Array {
		return c.fail(v, s)
	}
	elements := make([]types.Value, 0, v.Len())
	for n, e := range v.Elements {
		t, fits := c.convert(e, s.element)
		if !fits {
			return c.in(strconv.Itoa(n), "[]")
		}
		elements = append(elements, t)
	}
	set, ok := newSet(elements)
	if !ok {
		return c.fail(v, s)
	}
	return set, true
}

func (c *converter) record(v evaluation.Value, s *shape) (types.Value, bool) {
	if v.Kind() != evaluation.Map {
		return c.fail(v, s)
	}
	members := make(types.RecordMap, v.Len())
	for name, e := range v.Object().Members {
		a, declared := s.members[name]
		if !declared {
			c.dropped = true
			if c.reject {
				c.fault = misfit{undeclared: true}
				return c.in(name, "."+name)
			}
			continue
		}
		t, fits := c.convert(e, a.shape)
		if !fits {
			return c.in(name, "."+name)
		}
		members[types.String(name)] = t
	}
	if name, missing := missingFrom(members, s.members); missing {
		c.fault = misfit{}
		return c.in(name, "."+name)
	}
	return types.NewRecord(members), true
}

func (c *converter) scalar(v evaluation.Value, s *shape) (types.Value, bool) {
	switch {
	case s.form == shapeBool && v.Kind() == evaluation.Bool:
		return types.Boolean(v.True()), true
	case s.form == shapeLong && v.Kind() == evaluation.Number:
		n, ok := v.Scaled(0)
		return types.Long(n), ok
	case s.form == shapeDecimal && v.Kind() == evaluation.Number:
		n, ok := v.Scaled(4)
		if !ok {
			return nil, false
		}
		d, err := types.NewDecimal(n, -4)
		return d, err == nil
	case s.form == shapeEntity && v.Kind() == evaluation.Map:
		return c.reference(v.Object(), s)
	case v.Kind() == evaluation.String:
		return fromText(v.Text(), s)
	}
	return nil, false
}

// reference converts {"type": …, "id": …} where the schema says entity. The type
// is a wire name, as everywhere in a request, and must become the declared one.
func (c *converter) reference(o evaluation.Object, s *shape) (types.Value, bool) {
	typ, ok1 := o.Get("type")
	id, ok2 := o.Get("id")
	if !ok1 || !ok2 || o.Len() != 2 || id.Kind() != evaluation.String || typ.Kind() != evaluation.String {
		return nil, false
	}
	name, ok := c.config.entityType(typ.Text())
	if !ok || s.entity != anyEntity && name != s.entity {
		return nil, false
	}
	return allowed(types.EntityUID{Type: name, ID: types.String(id.Text())}, s)
}
