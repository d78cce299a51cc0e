package engine

import (
	"maps"
	"slices"
	"strconv"

	"github.com/cedar-policy/cedar-go/types"

	"policy-service/evaluation"
	"policy-service/pdp/internal/bundle"
)

// merger turns members of a request into attributes, one at a time.
type merger struct {
	describer
	owner    string          // the type or the variable that has the members, by its name in the policies
	base     types.Record    // the attributes that there are before
	members  types.RecordMap // those that there are now; nil if they are still those of base
	of       bundle.Variable // whose attributes these are; the context is in the place of the action
	declared map[string]bundle.AttributeShape
	typed    bool // there is a schema, and declared comes from it
	// lenient leaves out an optional member if its value does not fit the declared type. The
	// requester of an approval may be a person or an agent, and Cedar has no type for either.
	lenient bool
	origins
	piece // what the conversion yields besides the members
}

// merger returns a merger. declared are the attributes that an entity type or an action declares, or nil if there is
// no such declaration.
func (in *Inquiry) merger(v *bundle.View, owner string, declared map[string]bundle.AttributeShape) merger {
	return merger{describer: describer{in, v}, owner: owner, declared: declared, typed: in.Bundle.Schema != nil}
}

// put adds or replaces a member.
func (m *merger) put(name string, v types.Value) {
	m.change()
	m.members[types.String(name)] = v
}

// drop takes a member out, if it is there.
func (m *merger) drop(name string) {
	if _, has := m.base.Get(types.String(name)); has {
		m.change()
	}
	delete(m.members, types.String(name))
}

// change prepares for members that are not those of base.
func (m *merger) change() {
	if m.members != nil {
		return
	}
	m.members = types.RecordMap{}
	for name, v := range m.base.All() {
		if m.sees(string(name)) {
			m.members[name] = v
		}
	}
}

// record returns the members.
func (m *merger) record() types.Record {
	if m.members == nil {
		return m.base
	}
	return types.NewRecord(m.members)
}

// sees reports whether a policy can see a member. A member of a declared type has to fit it, seen or not.
func (m *merger) sees(name string) bool { return m.typed || m.v.Seen.Sees(m.of, name) }

// origins remembers the members that did not become attributes, or not with all that they hold, and those that the PDP
// supplied.
type origins struct {
	unusable          *gaps
	dropped, supplied []string
}

// convertMember converts one member. Its place in the request is the path followed by its name.
// For action.properties, which as a whole is one member, it is the path alone.
func (m *merger) convertMember(name string, value evaluation.Value, path ...string) error {
	a, declared := m.declared[name]
	// If there is no declaration at all, an unknown member is not rejected here: the request
	// does not fit the schema, and gets that answer.
	config := &m.in.Bundle.Config
	c := Converter{Config: config, Reject: config.RejectUnknown && m.declared != nil}
	switch {
	case declared:
	case m.typed:
		m.dropped = append(m.dropped, name)
		m.drop(name)
		if c.Reject {
			return m.undeclared(name, m.declared, placeOf(name, path))
		}
		return nil
	case !m.sees(name) && expressible(value, 0):
		return nil
	}
	v, fits := c.Convert(value, a.Shape)
	switch {
	case c.Fault.Undeclared:
		return m.undeclared(c.Fault.At[0], c.Fault.members, c.Fault.below(placeOf(name, path)))
	case fits && m.sees(name):
		m.put(name, v)
	case fits: // no policy sees it, and something in it is unusable
	case m.lenient && a.Optional:
		m.drop(name)
		c.dropped = true
	default:
		if declared {
			m.refuse(evaluation.SchemaMismatch)
		} else {
			m.drop(name)
		}
		c.left = append(c.left, leftOut{fault: c.Fault})
	}
	for n := range c.left {
		left := &c.left[n]
		if !declared {
			m.unusable = m.unusable.add(append([]string{name}, left.names...), false)
		}
		if !m.enough(&m.misfits) {
			place := append(placeOf(name, path), left.names...)
			m.misfits.note(m.at(m.describe(&left.fault, m.owner+"."+name), left.fault.below(place)...))
		}
	}
	if c.dropped {
		m.dropped = append(m.dropped, name)
	}
	return nil
}

// placeOf is the place of a member in the request.
func placeOf(name string, path []string) []string {
	place := slices.Clone(path)
	if path[0] == "action" {
		return place
	}
	return append(place, name)
}

// canHold reports whether a member can become an attribute. A schema drops undeclared members.
func (m *merger) canHold(name string) bool {
	_, declared := m.declared[name]
	return declared || !m.typed
}

// Untyped converts a value that no schema types. It reports false if Cedar cannot hold all of it.
func Untyped(v evaluation.Value) (types.Value, bool) {
	var c Converter
	t, fits := c.Convert(v, nil)
	return t, fits && c.left == nil
}

// expressible reports whether [Untyped] can convert a value that is within so many arrays.
func expressible(v evaluation.Value, arrays int) bool {
	switch v.Kind() {
	case evaluation.Null: // which only an array can hold
		return false
	case evaluation.Number:
		_, ok := v.Scaled(0)
		return ok
	case evaluation.Array:
		if arrays++; !holds(v, arrays) {
			return false
		}
		if v.Len() > bundle.FewElements { // they may collide
			_, ok := (&Converter{arrays: arrays - 1}).Convert(v, nil)
			return ok
		}
	}
	for _, e := range v.Elements {
		if !expressible(e, arrays) {
			return false
		}
	}
	for _, e := range v.Object().Members {
		if !expressible(e, arrays) {
			return false
		}
	}
	return true
}

// undeclared refuses a member that is not among those that are declared.
func (m *merger) undeclared(name string, declared map[string]bundle.AttributeShape, path []string) error {
	try := "leave it out, or have it declared" + m.near(name, maps.Keys(declared))
	return evaluation.Malformed("the schema does not declare this member", try, path...)
}

// Converter converts values to the types that a schema declares.
type Converter struct {
	Config  *bundle.Config
	Reject  bool // an undeclared member is malformed
	dropped bool
	Fault   misfit // set if a value does not fit
	// left are the members that were left out of the records of a value that no schema types. names lead to the record
	// that is converted now, and arrays is how many arrays that value is within: from those nothing is left out.
	left   []leftOut
	names  []string
	arrays int
}

// leftOut is a member that Cedar cannot hold: where names lead from the converted value.
type leftOut struct {
	names []string
	fault misfit
}

// misfit says why a value does not fit, and where below the converted value the fault is.
type misfit struct {
	Undeclared bool                             // the fault is an undeclared member
	missing    bool                             // the fault is that a required member is missing
	Want       *bundle.Shape                    // nil if nothing types the value, or a member is missing or undeclared
	got        evaluation.Value                 // the value that was sent; if a member is missing or undeclared, the object around it
	arrays     int                              // how many arrays it is within, itself included
	members    map[string]bundle.AttributeShape // what is declared of that object
	At         []string                         // the path to the fault, the innermost name first
	name       string                           // the same path as policies write it
}

// below returns the place of the fault in a request, if the converted value stands at the path.
func (f *misfit) below(path []string) []string {
	path = slices.Clone(path)
	for _, name := range slices.Backward(f.At) {
		path = append(path, name)
	}
	return path
}

// fail notes a value that does not fit.
func (c *Converter) fail(v evaluation.Value, s *bundle.Shape) (types.Value, bool) {
	c.Fault = misfit{Want: s, got: v, arrays: c.arrays}
	return nil, false
}

// in notes that the place of a fault is inside a member or an element.
func (c *Converter) in(token, name string) (types.Value, bool) {
	c.Fault.At, c.Fault.name = append(c.Fault.At, token), name+c.Fault.name
	return nil, false
}

// Convert converts a value. If the value does not fit, c.Fault says why. A nil shape is that of a value that no schema
// types. Its type is never guessed from the value: a string that looks like a date is a string, and a number that is
// not integral has no type at all.
func (c *Converter) Convert(v evaluation.Value, s *bundle.Shape) (types.Value, bool) {
	if s == nil {
		return c.untyped(v)
	}
	switch s.Form {
	case bundle.ShapeSet:
		return c.set(v, s)
	case bundle.ShapeRecord:
		return c.record(v, s)
	}
	t, fits := c.scalar(v, s)
	if !fits {
		return c.fail(v, s)
	}
	return t, true
}

func (c *Converter) untyped(v evaluation.Value) (types.Value, bool) {
	switch v.Kind() {
	case evaluation.Bool:
		return types.Boolean(v.True()), true
	case evaluation.String:
		return types.String(v.Text()), true
	case evaluation.Array:
		return c.set(v, nil)
	case evaluation.Map:
		return c.record(v, nil)
	case evaluation.Number:
		if n, ok := v.Scaled(0); ok {
			return types.Long(n), true
		}
	}
	return c.fail(v, nil)
}

func (c *Converter) set(v evaluation.Value, s *bundle.Shape) (types.Value, bool) {
	if v.Kind() != evaluation.Array {
		return c.fail(v, s)
	}
	var of *bundle.Shape
	if s != nil {
		of = s.Element
	}
	c.arrays++
	defer func() { c.arrays-- }()
	if !holds(v, c.arrays) {
		return c.fail(v, s)
	}
	elements := make([]types.Value, 0, v.Len())
	for n, e := range v.Elements {
		t, fits := c.Convert(e, of)
		if !fits {
			return c.in(strconv.Itoa(n), "[]")
		}
		elements = append(elements, t)
	}
	set, ok := bundle.NewSet(elements)
	if !ok {
		return c.fail(v, s)
	}
	return set, true
}

// holds reports whether Cedar can hold an array that is so many arrays deep, as far as its size says it.
func holds(v evaluation.Value, deep int) bool {
	most := bundle.MostElements
	if v.Len() > bundle.MostNested {
		for _, e := range v.Elements {
			if e.Kind() >= evaluation.Array {
				most = bundle.MostNested
				break
			}
		}
	}
	return deep <= bundle.MostArrays && v.Len() <= most
}

func (c *Converter) record(v evaluation.Value, s *bundle.Shape) (types.Value, bool) {
	if v.Kind() != evaluation.Map {
		return c.fail(v, s)
	}
	var of map[string]bundle.AttributeShape
	if s != nil {
		of = s.Members
	}
	leaves := s == nil && c.arrays == 0
	members := make(types.RecordMap, v.Len())
	for name, e := range v.Object().Members {
		a, declared := of[name]
		if !declared && s != nil {
			c.dropped = true
			if c.Reject {
				c.Fault = misfit{Undeclared: true, got: v, members: of}
				return c.in(name, "."+name)
			}
			continue
		}
		c.names = append(c.names, name)
		t, fits := c.Convert(e, a.Shape)
		switch {
		case fits:
			members[types.String(name)] = t
		case leaves:
			c.left = append(c.left, leftOut{slices.Clone(c.names), c.Fault})
		}
		if c.names = c.names[:len(c.names)-1]; !fits && !leaves {
			return c.in(name, "."+name)
		}
	}
	if name, missing := bundle.MissingFrom(members, of); missing {
		c.Fault = misfit{missing: true, got: v, members: of}
		return c.in(name, "."+name)
	}
	return types.NewRecord(members), true
}

func (c *Converter) scalar(v evaluation.Value, s *bundle.Shape) (types.Value, bool) {
	switch {
	case s.Form == bundle.ShapeBool && v.Kind() == evaluation.Bool:
		return types.Boolean(v.True()), true
	case s.Form == bundle.ShapeLong && v.Kind() == evaluation.Number:
		n, ok := v.Scaled(0)
		return types.Long(n), ok
	case s.Form == bundle.ShapeDecimal && v.Kind() == evaluation.Number:
		n, ok := v.Scaled(4)
		if !ok {
			return nil, false
		}
		d, err := types.NewDecimal(n, -4)
		return d, err == nil
	case s.Form == bundle.ShapeEntity && v.Kind() == evaluation.Map:
		return c.reference(v.Object(), s)
	case v.Kind() == evaluation.String:
		return bundle.FromText(v.Text(), s)
	}
	return nil, false
}

// reference converts {"type": …, "id": …} if the schema declares an entity. The type is a wire
// name, as everywhere in a request. It must map to the declared type.
func (c *Converter) reference(o evaluation.Object, s *bundle.Shape) (types.Value, bool) {
	typ, ok1 := o.Get("type")
	id, ok2 := o.Get("id")
	if !ok1 || !ok2 || o.Len() != 2 || id.Kind() != evaluation.String || typ.Kind() != evaluation.String {
		return nil, false
	}
	name, ok := c.Config.EntityType(typ.Text())
	if !ok || s.Entity != bundle.AnyEntity && name != s.Entity {
		return nil, false
	}
	return bundle.Allowed(types.EntityUID{Type: name, ID: types.String(id.Text())}, s)
}
