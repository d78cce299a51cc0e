package engine

import (
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go/types"

	"policy-service/evaluation"
	"policy-service/pdp/internal/bundle"
)

// A question whose request has places that are not known is made with nothing there, or, where the schema
// requires something, with some value that fits. Policies never see that value: see unknown.go. So the
// question fits the schema if the request can fit it with some values at these places.

// settling puts the places of one request in order.
type settling struct {
	in    *Inquiry // whose request changes
	v     *bundle.View
	spots []spot
}

// settledPart is one of the four parts of a request, once it is settled.
type settledPart struct {
	made  evaluation.Object
	spots []spot
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
			before := len(s.spots)
			for _, pointer := range pointers {
				if concerns(pointer) {
					s.settle(pointer, "")
				}
			}
			spots := slices.Clone(s.spots[before:])
			s.spots = s.spots[:before]
			return settledPart{*part.of, spots}, nil
		})
		*part.of, s.spots = made.made, append(s.spots, made.spots...)
	}
	for _, masked := range s.in.Hidden {
		s.settle(masked.At, masked.At)
	}
}

// settle clears what the request has at an unknown place. mask is the place that a mask hides, if it is one.
func (s *settling) settle(pointer, mask string) {
	tokens := evaluation.Tokens(pointer)
	if len(tokens) == 0 {
		return
	}
	r, before := &s.in.Request, len(s.spots)
	switch tokens[0] {
	case "context":
		s.context(tokens[1:])
	case "action":
		s.action(tokens[min(2, len(tokens)):])
	case "subject":
		s.entity(bundle.PrincipalVar, &r.Subject, tokens[min(2, len(tokens)):])
	case "resource":
		s.entity(bundle.ResourceVar, &r.Resource, tokens[min(2, len(tokens)):])
	}
	for n := range s.spots[before:] {
		s.spots[before+n].mask = mask
	}
}

func (s *settling) add(of bundle.Variable, names ...string) {
	s.spots = append(s.spots, spot{of: of, names: names})
}

// context settles a place in the context, which is in the place of the action.
func (s *settling) context(names []string) {
	uids, _ := s.in.uids()
	o := &s.in.Request.Context
	declared := s.in.Bundle.Schema.ContextOf(uids[bundle.ActionVar])
	switch {
	case len(names) == 0:
		*o = s.in.least(s.shape(declared), 0)
		s.add(bundle.ActionVar)
	case names[0] == "pdp": // no part of the request
		s.add(bundle.ActionVar, names...)
	case !evaluation.Protocol(names[0]):
		made, n := s.in.vacate(*o, names, s.shape(declared), nil)
		if *o = made; n > 0 {
			s.add(bundle.ActionVar, names[:n]...)
			s.spots[len(s.spots)-1].part = n < len(names)
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
		*o = s.in.least(shape, 1)
		s.add(bundle.ActionVar, "action")
		return
	}
	made, n := s.in.vacate(*o, names, shape, nil)
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
		if mayAgree(of, r, names) {
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
		for n, sent := range all {
			if *sent = (evaluation.Object{}); n == 0 && shape != nil && !o.Known {
				*sent = s.in.least(shape, 1)
			}
		}
		s.allowParents(uids[of].Type, all[0], "")
		s.add(of)
		return
	case o.passesOver(names[0]): // the stored value counts, whatever is sent
		for _, sent := range all {
			*sent = sent.Without(func(name string) bool { return name == names[0] })
		}
		return
	}
	_, stored := o.Stored.Attributes.Get(types.String(names[0]))
	_, sent := o.sent.Get(names[0])
	seen := 0
	for n, properties := range all {
		if _, has := properties.Get(names[0]); n > 0 && !has {
			continue
		}
		made, n := s.in.vacate(*properties, names, shape, lacks)
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

// vacate clears a place in an object, whose members are those of a record, or anything if that is nil. The place is
// where names lead. It returns the object, and how many of the names lead to what policies see of the place: fewer if
// they lead into a value that Cedar takes as a whole, and none if there can be nothing at the place that a policy sees.
// lacks reports which members may be missing although the record requires them.
func (in *Inquiry) vacate(
	o evaluation.Object, names []string, record *bundle.Shape, lacks func(string) bool,
) (evaluation.Object, int) {
	name := names[0]
	value, sent := o.Get(name)
	member := bundle.AttributeShape{Optional: true}
	if record != nil {
		declared, ok := record.Members[name]
		if !ok { // it is dropped, or refused: so it is as good as absent
			if len(names) == 1 && sent {
				o = o.With(name, evaluation.Value{})
			}
			return o, 0
		}
		member = declared
		member.Optional = member.Optional || lacks != nil && lacks(name)
	}
	switch whole, inside := below(value.Kind(), member.Shape); {
	case len(names) == 1 || whole:
		var some evaluation.Value // none
		if !member.Optional {
			some, _ = in.sample(member.Shape, 1)
		}
		if sent || !member.Optional { // else the object stays the one that it is, for what is kept of it
			o = o.With(name, some)
		}
		return o, 1
	case inside:
		made, n := in.vacate(value.Object(), names[1:], member.Shape, nil)
		if n > 0 {
			n++
		}
		if !sent && (n == 0 || member.Optional) || sent && made.Same(value.Object()) {
			return o, n
		}
		return o.With(name, made.Value()), n
	}
	return o, 0
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
