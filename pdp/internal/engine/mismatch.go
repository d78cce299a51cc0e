package engine

import (
	"slices"
	"strconv"
	"strings"

	"github.com/cedar-policy/cedar-go/types"

	"policy-service/evaluation"
	"policy-service/pdp/internal/bundle"
)

// maxMismatches bounds the mismatches that an answer names.
const maxMismatches = 16

// mismatch finds the places in the sent body that cannot be put to the policies. It repeats the
// steps of Inquiry.Question, with the same conversions. So a request without a mismatch pays
// nothing for it.
func (in *Inquiry) mismatch(v *bundle.View) []evaluation.Mismatch {
	b, r := in.Bundle, &in.Request
	m := mismatches{b: b, v: v, r: *r}
	subject, ok1 := m.entityUID(r.Subject, "subject")
	resource, ok2 := m.entityUID(r.Resource, "resource")
	if ok1 && ok2 {
		m.entities(in, subject, resource)
		var action types.EntityUID // it matters only if there is a schema
		if b.Schema != nil {
			action = types.EntityUID{Type: b.Config.ActionType, ID: types.String(r.Action.Name)}
			m.applies(b.Schema, action, subject, resource)
		}
		of := parts{uid: action, sent: r.Context, more: r.Action.Properties}
		in.misfit(bundle.ActionVar, of, &m, func(m *mismatches) { m.context(action) })
	}
	SortMismatch(m.found)
	return m.found
}

// SortMismatch puts mismatches into the order of their places.
func SortMismatch(all []evaluation.Mismatch) {
	slices.SortFunc(all, func(a, b evaluation.Mismatch) int { return strings.Compare(a.Pointer, b.Pointer) })
}

type mismatches struct {
	b     *bundle.Bundle
	v     *bundle.View
	r     evaluation.Request
	found []evaluation.Mismatch
}

// add notes a mismatch, unless one is noted for the same place already.
func (m *mismatches) add(detail string, at ...string) {
	one := evaluation.MisfitAt(detail, at...)
	one.Pointer = m.r.Shape.Pointer(one.Pointer)
	m.note(one)
}

func (m *mismatches) note(one evaluation.Mismatch) {
	samePlace := func(other evaluation.Mismatch) bool { return other.Pointer == one.Pointer }
	if len(m.found) < maxMismatches && !slices.ContainsFunc(m.found, samePlace) {
		m.found = append(m.found, one)
	}
}

// entityUID returns the name of the subject or the resource in policies. It reports false if the
// type is not known.
func (m *mismatches) entityUID(e evaluation.Entity, part string) (types.EntityUID, bool) {
	typ, ok := m.b.Config.EntityType(e.Type)
	if !ok {
		m.add("type "+quoteShortened(e.Type)+" is not known"+m.suggestType(e.Type), part, "type")
	}
	return types.EntityUID{Type: typ, ID: types.String(e.ID)}, ok
}

// entities repeats the steps of askEntities.
func (m *mismatches) entities(in *Inquiry, subject, resource types.EntityUID) {
	ofSubject, ofResource := m.r.Subject.Properties, m.r.Resource.Properties
	if subject != resource {
		in.misfit(bundle.PrincipalVar, parts{uid: subject, sent: ofSubject}, m, func(m *mismatches) {
			m.entity(subject, ofSubject, "subject", nil)
		})
		in.misfit(bundle.ResourceVar, parts{uid: resource, sent: ofResource}, m, func(m *mismatches) {
			m.entity(resource, ofResource, "resource", nil)
		})
		return
	}
	in.misfit(bundle.PrincipalVar, parts{uid: subject, sent: ofSubject, more: ofResource}, m, func(m *mismatches) {
		both, onlyResource, _ := oneEntity(ofSubject, ofResource)
		m.entity(subject, both, "subject", onlyResource)
	})
}

// entity repeats the steps of seenEntity.
func (m *mismatches) entity(uid types.EntityUID, sent evaluation.Object, part string, suspect []string) {
	b, o := m.b, originOf(m.b, m.v, uid, sent)
	if !o.Known && b.Config.Known[uid.Type] {
		m.add(
			"no entity of this id is in the store, and type "+quoteShortened(m.wire(part))+" is listed under known",
			part, "id",
		)
	}
	if s := b.Schema; s != nil && !s.Declares(uid.Type) {
		m.add("the schema declares no type "+quoteShortened(m.wire(part))+m.suggestType(m.wire(part)), part, "type")
	} else if s != nil && !s.Allows(uid) {
		m.add("type "+quoteShortened(m.wire(part))+" is enumerated, and has no such id", part, "id")
	}
	to := newMerger(b, b.AttributesOf(uid.Type))
	to.lenient = uid.Type == b.Config.ApprovalType
	for name, value := range sent.Members {
		if o.passesOver(name) {
			continue
		}
		from := part
		if contains(suspect, name) {
			if to.canHold(name) {
				m.add(
					"subject and resource are one entity, and only the resource sends this property; send it with the subject",
					"resource", "properties", name,
				)
				continue
			}
			from = "resource"
		}
		m.member(&to, name, value, string(uid.Type), from, "properties", name)
		m.parents(uid, name, value, from)
	}
	if !o.Known && b.Schema != nil {
		m.missing(uid.Type, to.declared, sent, part)
	}
}

// wire returns the type of the subject or the resource as the request writes it.
func (m *mismatches) wire(part string) string {
	if part == "subject" {
		return m.r.Subject.Type
	}
	return m.r.Resource.Type
}

// missing notes the required attributes that are missing for an entity that is in no store.
func (m *mismatches) missing(
	typ types.EntityType, declared map[string]bundle.AttributeShape, sent evaluation.Object, part string,
) {
	c := &m.b.Config
	for name, a := range bundle.ByName(declared) {
		if _, ok := sent.Get(name); ok || a.Optional || c.EvaluateUnknown && !c.ParentsFrom(typ, name) {
			continue
		}
		m.add(
			"required attribute "+bundle.Quote(name)+" was not sent, and no entity of this id is stored",
			part, "properties", name,
		)
	}
}

// parents notes a property that the configuration turns into parents, if the schema enumerates the ids of their type
// and one that was sent is not among them. A value that gives no ids is noted elsewhere. part is "subject" or
// "resource".
func (m *mismatches) parents(uid types.EntityUID, name string, value evaluation.Value, part string) {
	for _, rule := range m.b.Config.Parents[uid.Type] {
		if rule.Attribute != name || m.b.Schema == nil {
			continue
		}
		uids, _ := sentParents(value, rule.Parent)
		noSuchID := func(parent types.EntityUID) bool { return !m.b.Schema.Allows(parent) }
		if slices.ContainsFunc(uids, noSuchID) {
			m.add(
				"this gives parents of type "+bundle.Quote(string(rule.Parent))+", which is enumerated, and has no such id",
				part, "properties", name,
			)
		}
	}
}

// context repeats the steps of makeContext.
func (m *mismatches) context(action types.EntityUID) {
	b := m.b
	to := newMerger(b, b.Schema.ContextOf(action))
	for name, value := range m.r.Context.Members {
		if !evaluation.Protocol(name) {
			m.member(&to, name, value, "context", "context", name)
		}
	}
	m.member(&to, "action", m.r.Action.Properties.Value(), "context", "action", "properties")
	for name, a := range bundle.ByName(to.declared) {
		supplied := name == "pdp" || name == "action" || name == evaluation.ViaMember && bundle.SuppliesVia(&m.r)
		if _, ok := m.r.Context.Get(name); !ok && !a.Optional && !supplied {
			m.add("required member "+bundle.Quote(name)+" was not sent", "context", name)
		}
	}
}

// applies notes an action that the schema does not declare, or not for these types.
func (m *mismatches) applies(s *bundle.Schema, uid, subject, resource types.EntityUID) {
	action, name := s.Actions[uid], quoteShortened(m.r.Action.Name)
	if action == nil {
		m.add("the schema declares no action "+name+bundle.DidYouMean(m.r.Action.Name, slices.Values(m.v.Actions)), "action", "name")
		return
	}
	for _, of := range []struct {
		part string
		typ  types.EntityType
		list []types.EntityType
	}{{"subject", subject.Type, action.Principals}, {"resource", resource.Type, action.Resources}} {
		if !slices.Contains(of.list, of.typ) {
			m.add(
				"the schema declares action "+name+" for no "+of.part+" of type "+quoteShortened(m.wire(of.part)),
				of.part, "type",
			)
		}
	}
}

// member repeats the steps of merger.convertMember. owner is the type or the variable that has
// the member, by its name in the policies.
func (m *mismatches) member(to *merger, name string, value evaluation.Value, owner string, path ...string) {
	a, declared := to.declared[name]
	switch {
	case !to.typed && !declared:
		if at, why := unusable(value); why != "" {
			m.add(why, append(path, at...)...)
		}
	case declared:
		c := Converter{Config: to.config}
		if _, fits := c.Convert(value, a.Shape); !fits && !(to.lenient && a.Optional) {
			m.add(c.Fault.detail(owner+"."+name), c.Fault.below(path)...)
		}
	}
}

// detail describes a fault: what the schema declares there, and what was sent.
func (f *misfit) detail(of string) string {
	if f.Want == nil {
		return "the schema requires " + of + f.name + ", which was not sent"
	}
	return "the schema declares " + of + f.name + " as " + f.Want.String() + "; " + f.sent()
}

func (f *misfit) sent() string {
	switch v, form := f.got, f.Want.Form; {
	case v.Kind() == evaluation.Number && form == bundle.ShapeLong:
		return unusableNumber + " was sent"
	case v.Kind() == evaluation.Number && form == bundle.ShapeDecimal:
		return "a number beyond its four places or its range was sent"
	case v.Kind() == evaluation.String && form == bundle.ShapeEntity && f.Want.Entity == bundle.AnyEntity:
		return "a string was sent, which has no type"
	case v.Kind() == evaluation.String && f.Want.Enum != nil:
		return "the string that was sent is none of its ids"
	case v.Kind() == evaluation.String && form >= bundle.ShapeEntity:
		return "the string that was sent is none"
	case v.Kind() == evaluation.Map && form == bundle.ShapeEntity:
		return "the object that was sent names none; it has type and id alone"
	case v.Kind() == evaluation.Array && form == bundle.ShapeSet:
		return tooAlike
	}
	return kindNames[f.got.Kind()] + " was sent"
}

const (
	unusableNumber = "a number that is not integral, or beyond 64 bits,"
	tooAlike       = "its elements take too long to be told apart"
)

var kindNames = map[evaluation.Kind]string{
	evaluation.Null:   "null",
	evaluation.Bool:   "a boolean",
	evaluation.Number: "a number",
	evaluation.String: "a string",
	evaluation.Array:  "an array",
	evaluation.Map:    "an object",
}

// unusable finds the first part of a value that Cedar cannot express. It returns where that part
// is, and why Cedar cannot express it. If why is "", Cedar can express all of the value.
func unusable(v evaluation.Value) (at []string, why string) {
	in := func(token string, e evaluation.Value) bool {
		if at, why = unusable(e); why != "" {
			at = append([]string{token}, at...)
		}
		return why != ""
	}
	switch v.Kind() {
	case evaluation.Null:
		return nil, "null stands in an array, and Cedar has no null"
	case evaluation.Number:
		if _, ok := v.Scaled(0); !ok {
			return nil, reasonUnusable(v)
		}
	case evaluation.Array:
		for n, e := range v.Elements {
			if in(strconv.Itoa(n), e) {
				return at, why
			}
		}
		if _, ok := Untyped(v); !ok {
			return nil, tooAlike
		}
	case evaluation.Map:
		for name, e := range v.Object().Members {
			if in(name, e) {
				return at, why
			}
		}
	}
	return nil, ""
}

// reasonUnusable says why a number that is no integer of 64 bits cannot be used: it is too large, or a fraction.
func reasonUnusable(v evaluation.Value) string {
	if f, err := strconv.ParseFloat(v.Text(), 64); err != nil || f >= 1<<63 || f < -1<<63 {
		return "is beyond 64 bits, and no schema declares it"
	}
	return "is not integral, and no schema declares it decimal"
}

// suggestType suggests a type for a name that is no type's.
func (m *mismatches) suggestType(wire string) string {
	for name, typ := range m.b.Config.Types {
		if string(typ) == wire { // the request writes the type as policies do
			return "; did you mean " + bundle.Quote(name) + "?"
		}
	}
	return bundle.DidYouMean(wire, slices.Values(m.b.TypeNames))
}

// maxNamed bounds how much of a name from the request an answer repeats.
const maxNamed = 100

// quoteShortened quotes a name from the request, and shortens it if it is too long.
func quoteShortened(name string) string {
	if len(name) <= maxNamed {
		return bundle.Quote(name)
	}
	return bundle.Quote(strings.ToValidUTF8(name[:maxNamed], "")) + "…"
}
