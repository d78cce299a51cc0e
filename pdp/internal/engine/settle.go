package engine

import (
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go/types"

	"policy-service/evaluation"
	"policy-service/pdp/internal/bundle"
)

// A question whose request has places that are not known is made with nothing there, or, where the schema requires
// something, with some value that fits. Where a mask hides a value, there is some value. Policies never see it: see
// unknown.go. So the question fits the schema if the request can fit it with some values at these places.

// settling puts the places of one request in order.
type settling struct {
	in     *Inquiry // whose request changes
	v      *bundle.View
	places []place
	// hidden is the masked place that is settled now, nil for one that the caller does not know. misfits says of its value
	// what [place.misfits] says.
	hidden  *evaluation.Hidden
	misfits bool
	// unsure are the masked places on which any answer may hang.
	unsure []string
}

// settledPart is one of the four parts of a request, once it is settled.
type settledPart struct {
	made   evaluation.Object
	places []place
}

// settleAll settles all places that are unknown, and those that masks hide.
func (s *settling) settleAll() {
	r, pointers := &s.in.Request, s.in.Request.Unknown.Pointers()
	uids, _ := s.in.uids()
	action := uids[bundle.ActionVar]
	for n, part := range []struct {
		name   string
		uid    types.EntityUID
		of     *evaluation.Object
		shared bool
	}{
		{"subject", uids[bundle.PrincipalVar], &r.Subject.Properties, s.in.Inherits.Subject},
		{"resource", uids[bundle.ResourceVar], &r.Resource.Properties, s.in.Inherits.Resource},
		{"action", action, &r.Action.Properties, s.in.Inherits.Action},
		{"context", action, &r.Context, s.in.Inherits.Context},
	} {
		concerns := func(pointer string) bool {
			rest, ok := strings.CutPrefix(pointer, "/"+part.name)
			return ok && (rest == "" || rest[0] == '/')
		}
		if !slices.ContainsFunc(pointers, concerns) {
			continue
		}
		var kept *kept[settledPart]
		if one := uids[bundle.PrincipalVar] == uids[bundle.ResourceVar]; s.in.keeps.settled != nil && !one {
			kept = &s.in.keeps.settled[n]
		}
		made, _ := kept.get(parts{uid: part.uid, sent: *part.of}, part.shared, func() (settledPart, error) {
			before := len(s.places)
			for _, pointer := range pointers {
				if concerns(pointer) {
					s.settle(pointer)
				}
			}
			places := slices.Clone(s.places[before:])
			s.places = s.places[:before]
			return settledPart{*part.of, places}, nil
		})
		*part.of, s.places = made.made, append(s.places, made.places...)
	}
	for n := range s.in.Hidden {
		if h := &s.in.Hidden[n]; !covered(h.At, pointers) {
			s.settleHidden(h)
		}
	}
}

// covered reports whether a place is one of others, or below one.
func covered(at string, others []string) bool {
	return slices.ContainsFunc(others, func(other string) bool { return at == other || strings.HasPrefix(at, other+"/") })
}

// settleHidden settles a place that a mask hides.
func (s *settling) settleHidden(h *evaluation.Hidden) {
	before, tokens := len(s.places), evaluation.Tokens(h.At)
	s.hidden, s.misfits = h, false
	properties := len(tokens) > 1 && tokens[1] == "properties"
	switch {
	case len(tokens) == 0, tokens[0] != "context" && !properties, s.in.saysWhose(tokens):
		s.doubt() // it can hide anything
	}
	s.settle(h.At)
	for n := range s.places[before:] {
		s.places[before+n].hidden, s.places[before+n].misfits = h, s.misfits
	}
	s.hidden = nil
}

// doubt notes that any answer may hang on the masked place.
func (s *settling) doubt() { s.unsure = append(s.unsure, s.hidden.At) }

// settleWhole settles all properties, or the whole context: of a masked one, it is not known which members fit.
func (s *settling) settleWhole(o *evaluation.Object, shape *bundle.Shape, depth int, of bundle.Variable, names ...string) {
	if s.hidden != nil && s.hidden.Fit != evaluation.Fits {
		s.doubt()
	}
	*o = s.in.least(shape, depth)
	s.add(of, names...)
}

// settle puts at an unknown place what the question is made with.
func (s *settling) settle(pointer string) {
	tokens := evaluation.Tokens(pointer)
	if len(tokens) == 0 {
		return
	}
	r := &s.in.Request
	switch names := tokens[min(2, len(tokens)):]; tokens[0] {
	case "context":
		s.context(tokens[1:])
	case "action":
		s.action(names)
	case "subject":
		s.entity(bundle.PrincipalVar, &r.Subject, names)
	case "resource":
		s.entity(bundle.ResourceVar, &r.Resource, names)
	}
}

func (s *settling) add(of bundle.Variable, names ...string) {
	s.places = append(s.places, place{of: of, names: names})
}

// context settles a place in the context, which is in the place of the action.
func (s *settling) context(names []string) {
	uids, _ := s.in.uids()
	o := &s.in.Request.Context
	declared := s.in.Bundle.Schema.ContextOf(uids[bundle.ActionVar])
	switch {
	case len(names) == 0:
		s.settleWhole(o, s.shape(declared), 0, bundle.ActionVar)
	case names[0] == "pdp": // no part of the request
		s.add(bundle.ActionVar, names...)
	case !evaluation.Protocol(names[0]):
		made, n := s.vacate(*o, names, s.shape(declared), nil)
		if *o = made; n > 0 {
			s.add(bundle.ActionVar, names[:n]...)
			s.places[len(s.places)-1].part = n < len(names)
		}
	}
}

// action settles a place in the properties of the action, which are context.action.
func (s *settling) action(names []string) {
	uids, _ := s.in.uids()
	shape := s.shape(s.in.Bundle.Schema.ContextOf(uids[bundle.ActionVar]))
	if shape != nil {
		if shape = shape.Members["action"].Shape; shape == nil { // the schema declares no such action
			return
		}
	}
	o := &s.in.Request.Action.Properties
	if len(names) == 0 {
		s.settleWhole(o, shape, 1, bundle.ActionVar, "action")
		return
	}
	made, n := s.vacate(*o, names, shape, nil)
	if *o = made; n > 0 {
		s.add(bundle.ActionVar, append([]string{"action"}, names[:n]...)...)
	}
}

// entity settles a place in the properties of the subject or the resource. If both are one entity, what the other sends
// there is the same value.
func (s *settling) entity(of bundle.Variable, e *evaluation.Entity, names []string) {
	uids, _ := s.in.uids()
	b, r := s.in.Bundle, &s.in.Request
	o := originOf(b, s.v, uids[of], e.Properties)
	all := []*evaluation.Object{&e.Properties}
	if uids[bundle.PrincipalVar] == uids[bundle.ResourceVar] {
		switch {
		case s.hidden != nil && len(names) == 0: // and whether both send a property
			s.doubt()
		case s.hidden != nil && !leaveToSubject(r, names[0]):
			return
		case mayAgree(of, r, names):
			names = names[:1]
		}
		of, all = bundle.PrincipalVar, []*evaluation.Object{&r.Subject.Properties, &r.Resource.Properties}
		o.sent = r.Subject.Properties.Beside(r.Resource.Properties)
	}
	lacks := func(name string) bool {
		return o.Known || b.Config.EvaluateUnknown && !b.Config.ParentsFrom(uids[of].Type, name)
	}
	var shape *bundle.Shape
	if b.Schema != nil {
		shape = s.shape(b.AttributesOf(uids[of].Type))
	}
	switch {
	case len(names) == 0:
		if o.Known {
			shape = nil
		}
		s.settleWhole(all[0], shape, 1, of)
		for _, other := range all[1:] {
			*other = evaluation.Object{}
		}
		s.allowParents(uids[of].Type, all[0], "")
		return
	case o.passesOver(names[0]): // the stored value counts, whatever is sent
		for _, sent := range all {
			*sent = sent.Without(func(name string) bool { return name == names[0] })
		}
		return
	case s.hidden != nil && b.Config.ParentsFrom(uids[of].Type, names[0]) && (s.hidden.Fit != evaluation.Fits || s.enumerates(uids[of].Type)):
		s.doubt() // which ids there are is not looked into
		s.add(of, names[0])
		return
	}
	_, stored := o.Stored.Attributes.Get(types.String(names[0]))
	_, sent := o.sent.Get(names[0])
	seen := 0
	for n, properties := range all {
		if _, has := properties.Get(names[0]); n > 0 && !has {
			continue
		}
		made, n := s.vacate(*properties, names, shape, lacks)
		*properties, seen = made, max(seen, n)
	}
	for _, properties := range all {
		s.allowParents(uids[of].Type, properties, names[0])
	}
	if seen > 0 && stored && !sent {
		seen = 1 // to send a part replaces all that is stored
	}
	if seen > 0 {
		s.add(of, names[:seen]...)
	}
}

// enumerates reports whether a type of parents that properties give is enumerated.
func (s *settling) enumerates(typ types.EntityType) bool {
	for _, rule := range s.in.Bundle.Config.Parents[typ] {
		if !s.in.Bundle.Schema.AllowsAny(rule.Parent) {
			return true
		}
	}
	return false
}

// leaveToSubject takes a masked property from the resource if the subject, which is the same entity, sends it too:
// their values are the same, or the request was malformed. It reports false if the resource alone sends the property:
// policies do not see that, so that no user gives themselves a role with the resource.
func leaveToSubject(r *evaluation.Request, name string) bool {
	_, subject := r.Subject.Properties.Get(name)
	_, resource := r.Resource.Properties.Get(name)
	if subject {
		r.Resource.Properties = r.Resource.Properties.Without(func(other string) bool { return other == name })
	}
	return subject || !resource
}

// mayAgree reports whether the subject, which is the resource, sends a property only with a value at an unknown place.
// What the resource sends there counts only if the subject sends the same.
func mayAgree(of bundle.Variable, r *evaluation.Request, names []string) bool {
	if of != bundle.PrincipalVar || len(names) < 2 {
		return false
	}
	_, subject := r.Subject.Properties.Get(names[0])
	_, resource := r.Resource.Properties.Get(names[0])
	return resource && !subject
}

// allowParents has a property that gives a parent of an enumerated type give one that there is. name is the property
// that is not known; "" is all of them.
func (s *settling) allowParents(typ types.EntityType, sent *evaluation.Object, name string) {
	for _, rule := range s.in.Bundle.Config.Parents[typ] {
		v, _ := sent.Get(rule.Attribute)
		if (name == "" || name == rule.Attribute) && v.Kind() == evaluation.String && !s.in.Bundle.Schema.AllowsAny(rule.Parent) {
			*sent = sent.With(rule.Attribute, valueOf(s.in.Bundle.Schema.AnID(rule.Parent)))
		}
	}
}

// shape is the record of what a schema declares; nil without a schema.
func (s *settling) shape(declared map[string]bundle.AttributeShape) *bundle.Shape {
	if s.in.Bundle.Schema == nil {
		return nil
	}
	return &bundle.Shape{Form: bundle.ShapeRecord, Members: declared}
}

// least is an object with no more than it must have: what a record requires, or nothing. The record at depth 0 is the
// context, to which the PDP adds members.
func (in *Inquiry) least(record *bundle.Shape, depth int) evaluation.Object {
	if record == nil {
		return evaluation.Object{}
	}
	v, _ := in.sample(record, depth)
	return v.Object()
}

// vacate clears a place in an object, or puts some value there if a mask hides the value. The members of the object are
// those of a record, or anything if that is nil. The place is where names lead. It returns the object, and how many of the
// names lead to what policies see of the place: fewer if they lead into a value that Cedar takes as a whole, and none if
// there can be nothing at the place that a policy sees. lacks reports which members may be missing although the record
// requires them.
func (s *settling) vacate(
	o evaluation.Object, names []string, record *bundle.Shape, lacks func(string) bool,
) (evaluation.Object, int) {
	name := names[0]
	value, sent := o.Get(name)
	member := bundle.AttributeShape{Optional: true}
	if record != nil {
		declared, ok := record.Members[name]
		if !ok { // it is dropped, or refused: so it is as good as absent
			if len(names) == 1 && sent && s.hidden == nil {
				o = o.With(name, evaluation.Value{})
			}
			return o, 0
		}
		member = declared
		member.Optional = member.Optional || lacks != nil && lacks(name)
	}
	whole, inside := below(value.Kind(), member.Shape)
	switch end := len(names) == 1; {
	case s.hidden != nil && (end || whole):
		some, seen := s.stand(value, member.Shape, end)
		return o.With(name, some), seen
	case end || whole:
		var some evaluation.Value // none
		if !member.Optional {
			some, _ = s.in.sample(member.Shape, 1)
		}
		if sent || !member.Optional { // else the object stays the one that it is, for what is kept of it
			o = o.With(name, some)
		}
		return o, 1
	case inside:
		made, n := s.vacate(value.Object(), names[1:], member.Shape, nil)
		if n > 0 {
			n++
		}
		if !sent && (n == 0 || member.Optional && s.hidden == nil) || sent && made.Same(value.Object()) {
			return o, n
		}
		return o.With(name, made.Value()), n
	case s.hidden != nil:
		s.doubt() // no value was sent there
	}
	return o, 0
}

// unfit is a value that fits no type, and that Cedar does not have.
var unfit = valueOf([]any{nil})

// stand returns the value with which the question is made in a masked place, and 1 if policies see the place. whole says
// that the place is the value, and not in an array or in a reference, which is unknown as a whole then. shape is what
// the schema declares, nil without a schema. If the masked value did not fit, policies see no value, whatever it was.
func (s *settling) stand(v evaluation.Value, shape *bundle.Shape, whole bool) (evaluation.Value, int) {
	if s.hidden.Fit == evaluation.Misfits {
		return unfit, 0
	}
	some, ok := s.hidden.Some()
	if whole && v.Kind() != some.Kind() {
		v = some
	}
	form := bundle.ShapeString
	if some.Kind() == evaluation.Bool {
		form = bundle.ShapeBool
	}
	plain := some.Kind() == evaluation.String || some.Kind() == evaluation.Bool
	fits := whole && plain && (shape == nil || shape.Form == form) // whatever the value is
	s.misfits = s.hidden.Fit == evaluation.FitUnknown && !fits
	if c := &s.in.Bundle.Config; shape != nil {
		if _, fits := (&Converter{Config: c, Reject: c.RejectUnknown}).Convert(v, shape); !fits {
			v, ok = s.in.sample(shape, 1)
		}
	}
	if !ok {
		s.doubt()
	}
	return v, 1
}

// below says what can be below a value of this kind, or below an absent one: members that policies see, or parts of
// what they see as a whole. shape is what the schema declares, nil without a schema.
func below(kind evaluation.Kind, shape *bundle.Shape) (whole, inside bool) {
	absent, object, array := kind == evaluation.Null, kind == evaluation.Map, kind == evaluation.Array
	switch {
	case shape == nil:
		return array, object || absent
	case shape.Form == bundle.ShapeRecord:
		return false, object || absent
	case shape.Form == bundle.ShapeSet:
		return array || absent, false
	case shape.Form == bundle.ShapeEntity:
		return object || absent, false
	}
	return false, false
}

// valueOf makes a value that is known to be one.
func valueOf(v any) evaluation.Value {
	o, err := evaluation.NewObject(map[string]any{"v": v})
	if err != nil {
		return evaluation.Value{}
	}
	made, _ := o.Get("v")
	return made
}

// simple are values, one of which fits any type but records, references of some types and enumerated ones.
var simple = func() (all []evaluation.Value) {
	for _, v := range []any{true, 0, "x", "0", "0s", "0.0", "127.0.0.1", "2024-01-01", []any{}} {
		all = append(all, valueOf(v))
	}
	return all
}()

// sample makes a value of a declared type. Types can contain themselves only through entities.
func (in *Inquiry) sample(s *bundle.Shape, depth int) (evaluation.Value, bool) {
	if depth > 32 {
		return evaluation.Value{}, false
	}
	c := Converter{Config: &in.Bundle.Config}
	fits := func(v evaluation.Value) bool {
		_, fits := c.Convert(v, s)
		return fits
	}
	if n := slices.IndexFunc(simple, fits); n >= 0 {
		return simple[n], true
	}
	if s.Form == bundle.ShapeEntity && s.Enum == nil {
		for _, typ := range []string{in.Request.Subject.Type, in.Request.Resource.Type} {
			if v := valueOf(map[string]any{"type": typ, "id": "x"}); fits(v) {
				return v, true
			}
		}
	}
	if len(s.Enum) > 0 {
		var ids []string
		for uid := range s.Enum {
			ids = append(ids, string(uid.ID))
		}
		return valueOf(slices.Min(ids)), true
	}
	if s.Form != bundle.ShapeRecord {
		return evaluation.Value{}, false
	}
	var o evaluation.Object
	for name, a := range bundle.ByName(s.Members) {
		if a.Optional || depth == 0 && (name == "pdp" || name == "action") {
			continue
		}
		member, ok := in.sample(a.Shape, depth+1)
		if !ok {
			return evaluation.Value{}, false
		}
		o = o.With(name, member)
	}
	return o.Value(), true
}
