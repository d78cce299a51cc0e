package engine

import (
	"maps"
	"slices"

	"github.com/cedar-policy/cedar-go/types"

	"policy-service/evaluation"
	"policy-service/pdp/internal/bundle"
)

// place is a hidden place as the policies see it.
type place struct {
	evaluation.Hidden
	path      bundle.AttributePath // where policies read the value, or the array that it is an element of
	element   bool                 // it is an element of the array at path
	deep      bool                 // it lies deeper in that element
	reference bool                 // it is a part of a reference to an entity, which is at path
	shape     *bundle.Shape        // what the schema declares; nil without a schema
	unseen    bool                 // no policy sees the value
	parent    types.EntityType     // the value gives parents of this type

	filled   bool             // an obligation may say it
	shown    evaluation.Value // what the record has there
	compared bool             // the value is compared with these, by kinds
	patterns []textPattern
	longs    []types.Long
	elements []types.Value
	crossed  []*place // those that it is compared with
	hard     bool     // values for it would take too long to find

	values     []evaluation.Value // those that stand for all others
	readers    map[string]bool    // the policies that use it
	openIn     map[string]bool    // the policies whose verdict it leaves open
	unknowable bool
}

// kind says what values can be in a place, as the policies see them.
type kind uint8

const (
	otherKind kind = iota // an entity, or a value of an extension type
	textKind
	longKind
	boolKind
	setKind
	recordKind
)

var kindsOfTypes = map[string]kind{
	"string": textKind, "number": longKind, "bool": boolKind, "array": setKind, "object": recordKind,
}

func (p *place) kind() kind {
	if p.shape == nil {
		return kindsOfTypes[p.Type]
	}
	return kindOf(p.shape)
}

func kindOf(s *bundle.Shape) kind {
	switch {
	case s.Form == bundle.ShapeBool:
		return boolKind
	case s.Form == bundle.ShapeLong:
		return longKind
	case s.Form == bundle.ShapeString:
		return textKind
	case s.Form == bundle.ShapeRecord:
		return recordKind
	case s.Form == bundle.ShapeSet && kindOf(s.Element) != otherKind && kindOf(s.Element) != setKind && kindOf(s.Element) != recordKind:
		return setKind
	}
	return otherKind
}

// findPlaces makes the places, and puts some value that fits at each.
func (h *hiding) findPlaces(hidden []evaluation.Hidden) {
	uids, _ := h.in.uids()
	if h.one = uids[bundle.PrincipalVar] == uids[bundle.ResourceVar]; h.one {
		hidden = h.sendOnce(hidden)
	}
	for _, one := range hidden {
		p := &place{Hidden: one, readers: map[string]bool{}, openIn: map[string]bool{}}
		tokens := evaluation.Tokens(one.At)
		var names []string
		switch {
		case len(tokens) >= 2 && tokens[0] == "subject":
			p.path.Root, names = "principal", tokens[2:]
		case len(tokens) >= 2 && tokens[0] == "resource":
			p.path.Root, names = "resource", tokens[2:]
		case len(tokens) >= 2 && tokens[0] == "action":
			p.path.Root, names = "context", append([]string{"action"}, tokens[2:]...)
		case len(tokens) >= 1 && tokens[0] == "context":
			p.path.Root, names = "context", tokens[1:]
		default: // nobody knows what it hides
			p.unknowable = true
			h.places = append(h.places, p)
			continue
		}
		p.shown, _ = h.in.Request.At(p.At)
		h.locate(p, names, uids)
		p.unknowable = p.unknowable || h.in.saysWhose(p.Hidden)
		h.settle(p)
		h.places = append(h.places, p)
	}
}

// sendOnce is for one entity that is both subject and resource. What both send is the same value,
// or the request was malformed. So it is sent with the subject alone, and is hidden only if
// it is in both.
func (h *hiding) sendOnce(hidden []evaluation.Hidden) []evaluation.Hidden {
	subject, resource := &h.in.Request.Subject.Properties, &h.in.Request.Resource.Properties
	topOf := func(one evaluation.Hidden, of string) string {
		if t := evaluation.Tokens(one.At); len(t) > 2 && t[0] == of {
			return t[2]
		}
		return ""
	}
	isHidden := func(name, of string) bool {
		return slices.ContainsFunc(hidden, func(one evaluation.Hidden) bool { return topOf(one, of) == name })
	}
	var known, sent []string
	for name, value := range resource.Members {
		if _, both := subject.Get(name); !both {
			continue
		}
		sent = append(sent, name)
		if !isHidden(name, "resource") {
			known, *subject = append(known, name), subject.With(name, value)
		}
	}
	*resource = resource.Without(func(name string) bool { return slices.Contains(sent, name) })
	return slices.DeleteFunc(slices.Clone(hidden), func(one evaluation.Hidden) bool {
		return slices.Contains(sent, topOf(one, "resource")) || slices.Contains(known, topOf(one, "subject"))
	})
}

// locate finds where policies see the value.
func (h *hiding) locate(p *place, names []string, uids [bundle.Variables]types.EntityUID) {
	b := h.in.Bundle
	var declared map[string]bundle.AttributeShape
	var all evaluation.Value
	switch p.path.Root {
	case "principal", "resource":
		of, sent := bundle.PrincipalVar, h.in.Request.Subject.Properties
		if p.path.Root == "resource" {
			of, sent = bundle.ResourceVar, h.in.Request.Resource.Properties
		}
		declared, all = b.AttributesOf(uids[of].Type), sent.Value()
		if len(names) > 0 {
			o := originOf(b, h.v, uids[of], sent)
			p.unseen = o.passesOver(names[0])
			p.unseen = p.unseen || h.one && of == bundle.ResourceVar // sent with the resource alone, it does not count
			for _, rule := range b.Config.Parents[uids[of].Type] {
				if rule.Attribute == names[0] && !p.unseen {
					p.parent = rule.Parent
					p.unknowable = len(names) > 2 || len(names) == 2 && p.Type != "string" || !h.in.Bundle.Schema.AllowsAny(rule.Parent)
				}
			}
		} else if len(b.Config.Parents[uids[of].Type]) > 0 {
			p.unknowable = true // what gives parents is hidden, too
		} else if h.one {
			p.unknowable = true // and whether both send a member
		}
	case "context":
		declared, all = b.Schema.ContextOf(uids[bundle.ActionVar]), h.in.Request.Context.Value()
		if len(names) > 0 {
			p.unseen = evaluation.Protocol(names[0])
			if names[0] == "action" {
				all = evaluation.Object{}.With("action", h.in.Request.Action.Properties.Value()).Value()
			}
		}
	}
	if b.Schema != nil {
		if p.path.Root == "context" && len(names) == 0 { // the PDP sets these
			declared = maps.Clone(declared)
			delete(declared, "pdp")
			delete(declared, "action")
		}
		p.shape = &bundle.Shape{Form: bundle.ShapeRecord, Members: declared}
	} else if len(names) == 0 && p.Fit != evaluation.Fits {
		p.unknowable = true // each member that misfits is one whose name counts
	}
	for n, name := range names {
		if all.Kind() == evaluation.Array {
			p.element, p.deep = true, n < len(names)-1
			h.descend(p, names[n:])
			break
		}
		if p.shape != nil && p.shape.Form == bundle.ShapeEntity { // it is a part of a reference
			p.reference = true
			p.unknowable = name != "id" || p.Type != "string" || p.shape.Enum != nil || p.Fit != evaluation.Fits
			break
		}
		p.path.Names = append(p.path.Names, name)
		all, _ = all.Object().Get(name)
		if p.shape == nil {
			continue
		}
		a, ok := p.shape.Members[name]
		p.unseen = p.unseen || !ok // the schema drops it, or the value around it does not fit
		p.shape = a.Shape
		if !ok {
			break
		}
	}
}

// descend finds the shape of what lies in an element.
func (h *hiding) descend(p *place, names []string) {
	for _, name := range names {
		switch {
		case p.shape == nil:
			return
		case p.shape.Form == bundle.ShapeSet:
			p.shape = p.shape.Element
		case p.shape.Form == bundle.ShapeEntity:
			p.reference = true
			p.unknowable = p.unknowable || name != "id" || p.Type != "string" || p.shape.Enum != nil || p.Fit != evaluation.Fits
			return
		default:
			a, ok := p.shape.Members[name]
			p.unseen = p.unseen || !ok
			if p.shape = a.Shape; !ok {
				return
			}
		}
	}
}

// settle puts a value at the place that the schema takes, unless the one there already does.
func (h *hiding) settle(p *place) {
	now, has := h.in.Request.At(p.At)
	if !has || !p.Part && p.Type != now.Kind().TypeName() {
		now, _ = p.Some()
	}
	if p.shape != nil && !p.unseen && !p.reference {
		if _, fits := (&Converter{Config: &h.in.Bundle.Config}).Convert(now, p.shape); !fits {
			if fitting, ok := h.sampleOf(p, now); ok {
				now = fitting
			} else if p.Fit == evaluation.Fits {
				p.unknowable = true
			}
		}
	}
	if p.Fit == evaluation.Misfits && !p.unseen {
		if misfit, ok := h.misfit(p); ok {
			now, p.unseen = misfit, true // the policies see that there is something, whatever it is
		} else {
			p.unknowable = true
		}
	}
	h.in.Request = h.in.Request.Put(p.At, now)
	p.values = []evaluation.Value{now}
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

// sampleOf makes a value of the declared type that can have stood in the place.
func (h *hiding) sampleOf(p *place, now evaluation.Value) (evaluation.Value, bool) {
	c := Converter{Config: &h.in.Bundle.Config}
	tries := []evaluation.Value{}
	if s := p.shape; s.Form == bundle.ShapeEntity && p.Type == "object" {
		if wire, ok := c.Config.WireType(s.Entity); ok {
			ids := []string{"x"}
			for uid := range s.Enum {
				ids = append(ids, string(uid.ID))
			}
			slices.Sort(ids)
			for _, id := range ids {
				tries = append(tries, valueOf(map[string]any{"type": wire, "id": id}))
			}
		}
	}
	if p.Type == "string" {
		for _, v := range []any{"x", "0", "0s", "0.0", "127.0.0.1", "2024-01-01"} {
			tries = append(tries, valueOf(v))
		}
	}
	if fitting, ok := h.in.sample(p.shape, 0); ok && fitting.Kind().TypeName() == p.Type {
		if p.Part && p.Type == "object" { // what is known stays
			for name, v := range p.shown.Object().Members {
				fitting = fitting.Object().With(name, v).Value()
			}
		}
		tries = append(tries, fitting)
	}
	for _, v := range tries {
		if _, fits := c.Convert(v, p.shape); fits {
			return v, true
		}
	}
	return now, false
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
