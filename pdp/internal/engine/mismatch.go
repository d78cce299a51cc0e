package engine

import (
	"cmp"
	"slices"
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
	m := mismatches{in: in, b: b, v: v, r: *r}
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
	in    *Inquiry
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
		m.add("type "+quoteShortened(e.Type)+" is not known"+m.nearType(e.Type), part, "type")
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
			"no entity of this id is in the store, and type "+quoteShortened(m.wire(part))+" is listed under known"+
				m.nearStored(uid),
			part, "id",
		)
	}
	if s := b.Schema; s != nil && !s.Declares(uid.Type) {
		m.add("the schema declares no type "+quoteShortened(m.wire(part))+m.nearType(m.wire(part)), part, "type")
	} else if s != nil && !s.Allows(uid) {
		m.add(
			"type "+quoteShortened(m.wire(part))+" is enumerated, and has no such id"+m.near(string(uid.ID), s.IDs(uid.Type)),
			part, "id",
		)
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
		m.missing(uid, to.declared, sent, part)
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
	uid types.EntityUID, declared map[string]bundle.AttributeShape, sent evaluation.Object, part string,
) {
	c := &m.b.Config
	for name, a := range bundle.ByName(declared) {
		if _, ok := sent.Get(name); ok || a.Optional || c.EvaluateUnknown && !c.ParentsFrom(uid.Type, name) {
			continue
		}
		m.add(
			"required attribute "+bundle.Quote(name)+" was not sent, and no entity of this id is stored"+
				cmp.Or(m.sentFor(name, sent, declared), m.nearStored(uid)),
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
		if n := slices.IndexFunc(uids, noSuchID); n >= 0 {
			m.add(
				"this gives parents of type "+bundle.Quote(string(rule.Parent))+", which is enumerated, and has no such id"+
					m.near(string(uids[n].ID), m.b.Schema.IDs(rule.Parent)),
				part, "properties", name,
			)
		}
	}
}

// context repeats the steps of makeContext.
func (m *mismatches) context(action types.EntityUID) {
	b := m.b
	to := newMerger(b, b.Schema.ContextOf(action))
	sent := m.r.Context.Without(evaluation.Protocol)
	for name, value := range sent.Members {
		m.member(&to, name, value, "context", "context", name)
	}
	m.member(&to, "action", m.r.Action.Properties.Value(), "context", "action", "properties")
	for name, a := range bundle.ByName(to.declared) {
		supplied := name == "pdp" || name == "action" || name == evaluation.ViaMember && bundle.SuppliesVia(&m.r)
		if _, ok := m.r.Context.Get(name); !ok && !a.Optional && !supplied {
			m.add("required member "+bundle.Quote(name)+" was not sent"+m.sentFor(name, sent, to.declared), "context", name)
		}
	}
}

// applies notes an action that the schema does not declare, or not for these types.
func (m *mismatches) applies(s *bundle.Schema, uid, subject, resource types.EntityUID) {
	action, name := s.Actions[uid], quoteShortened(m.r.Action.Name)
	switch {
	case action == nil:
		m.add("the schema declares no action "+name+m.nearAction(m.r.Action.Name), "action", "name")
		return
	case len(action.Principals) == 0 || len(action.Resources) == 0:
		m.add("the schema declares action "+name+" for no request at all; ask about an action that is in it", "action", "name")
		return
	}
	for _, of := range []struct {
		part string
		typ  types.EntityType
		list []types.EntityType
	}{{"subject", subject.Type, action.Principals}, {"resource", resource.Type, action.Resources}} {
		if !slices.Contains(of.list, of.typ) {
			m.add(
				"the schema declares action "+name+" for no "+of.part+" of type "+quoteShortened(m.wire(of.part))+
					"; it declares it for "+m.wireNames(of.list),
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
			m.add(m.describe(&c.Fault, owner+"."+name), c.Fault.below(path)...)
		}
	}
}
