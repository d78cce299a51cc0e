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

// mismatches are places in the sent body that cannot be put to the policies, each once.
type mismatches []evaluation.Mismatch

// full reports whether no more of them are noted.
func (m *mismatches) full() bool { return len(*m) >= maxMismatches }

// note adds mismatches, unless one is noted for the same place already.
func (m *mismatches) note(all ...evaluation.Mismatch) {
	for _, one := range all {
		samePlace := func(other evaluation.Mismatch) bool { return other.Pointer == one.Pointer }
		if !m.full() && !slices.ContainsFunc(*m, samePlace) {
			*m = append(*m, one)
		}
	}
}

// SortMismatch puts mismatches into the order of their places.
func SortMismatch(all []evaluation.Mismatch) {
	slices.SortFunc(all, func(a, b evaluation.Mismatch) int { return strings.Compare(a.Pointer, b.Pointer) })
}

// describer describes why parts of the inquiry's request do not fit, where the conversion finds that out.
type describer struct {
	in *Inquiry
	v  *bundle.View
}

// enough reports whether no more of them are described.
func (d describer) enough(m *mismatches) bool { return d.in.NoMismatch || m.full() }

// at is a mismatch at a place in the request.
func (d describer) at(detail string, at ...string) evaluation.Mismatch {
	one := evaluation.MisfitAt(detail, at...)
	one.Pointer = d.in.Request.Shape.Pointer(one.Pointer)
	return one
}

// wire returns the type of the subject or the resource as the request writes it.
func (d describer) wire(part string) string {
	if part == "subject" {
		return d.in.Request.Subject.Type
	}
	return d.in.Request.Resource.Type
}

// unknownTypes notes the types of the subject and the resource that policies cannot name.
func (d describer) unknownTypes(to *mismatches) {
	for _, part := range []string{"subject", "resource"} {
		if _, ok := d.in.Bundle.Config.EntityType(d.wire(part)); !ok {
			to.note(d.at("type "+quoteShortened(d.wire(part))+" is not known"+d.nearType(d.wire(part)), part, "type"))
		}
	}
}

// unknownEntity describes an entity that must be in the store and is not.
func (d describer) unknownEntity(uid types.EntityUID, part string) evaluation.Mismatch {
	return d.at(
		"no entity of this id is in the store, and type "+quoteShortened(d.wire(part))+" is listed under known"+
			d.nearStored(uid),
		part, "id",
	)
}

// undeclaredType describes a type that the schema does not declare.
func (d describer) undeclaredType(part string) evaluation.Mismatch {
	return d.at("the schema declares no type "+quoteShortened(d.wire(part))+d.nearType(d.wire(part)), part, "type")
}

// noSuchID describes an id that an enumerated type does not have.
func (d describer) noSuchID(uid types.EntityUID, part string) evaluation.Mismatch {
	return d.at(
		"type "+quoteShortened(d.wire(part))+" is enumerated, and has no such id"+
			d.near(string(uid.ID), d.in.Bundle.Schema.IDs(uid.Type)),
		part, "id",
	)
}

// entity notes why an entity as a whole does not fit the schema: it is in no store and lacks required attributes, or
// a property gives parents that an enumerated type does not have.
func (d describer) entity(uid types.EntityUID, o *origin, part string, to *mismatches) {
	c, declared := &d.in.Bundle.Config, d.in.Bundle.AttributesOf(uid.Type)
	if d.enough(to) {
		return
	}
	for name, a := range bundle.ByName(declared) {
		_, sent := o.sent.Get(name)
		if o.Known || sent || a.Optional || c.EvaluateUnknown && !c.ParentsFrom(uid.Type, name) {
			continue
		}
		if d.enough(to) {
			return
		}
		to.note(d.at(
			"required attribute "+bundle.Quote(name)+" was not sent, and no entity of this id is stored"+
				cmp.Or(d.sentFor(name, o.sent, declared), d.nearStored(uid)),
			part, "properties", name,
		))
	}
	s := d.in.Bundle.Schema
	noSuchID := func(parent types.EntityUID) bool { return !s.Allows(parent) }
	for _, rule := range c.Parents[uid.Type] {
		value, sent := o.sent.Get(rule.Attribute)
		uids, _ := sentParents(value, rule.Parent)
		if n := slices.IndexFunc(uids, noSuchID); sent && n >= 0 && !o.passesOver(rule.Attribute) {
			to.note(d.at(
				"this gives parents of type "+bundle.Quote(string(rule.Parent))+", which is enumerated, and has no such id"+
					d.near(string(uids[n].ID), s.IDs(rule.Parent)),
				part, "properties", rule.Attribute,
			))
		}
	}
}

// request notes an action that the schema does not declare, or not for these types, and members that the context lacks.
func (d describer) request(uids *[bundle.Variables]types.EntityUID, to *mismatches) {
	if d.enough(to) {
		return
	}
	d.applies(uids, to)
	r := &d.in.Request
	declared := d.in.Bundle.Schema.ContextOf(uids[bundle.ActionVar])
	for name, a := range bundle.ByName(declared) {
		supplied := name == "pdp" || name == "action" || name == evaluation.ViaMember && bundle.SuppliesVia(r)
		if d.enough(to) {
			return
		}
		if _, ok := r.Context.Get(name); !ok && !a.Optional && !supplied {
			to.note(d.at("required member "+bundle.Quote(name)+" was not sent"+d.sentFor(name, r.Context, declared), "context", name))
		}
	}
}

func (d describer) applies(uids *[bundle.Variables]types.EntityUID, to *mismatches) {
	name := d.in.Request.Action.Name
	action, quoted := d.in.Bundle.Schema.Actions[uids[bundle.ActionVar]], quoteShortened(name)
	switch {
	case action == nil:
		to.note(d.at("the schema declares no action "+quoted+d.nearAction(name), "action", "name"))
		return
	case len(action.Principals) == 0 || len(action.Resources) == 0:
		to.note(d.at("the schema declares action "+quoted+" for no request at all; ask about an action that is in it", "action", "name"))
		return
	}
	for _, of := range []struct {
		part string
		typ  types.EntityType
		list []types.EntityType
	}{
		{"subject", uids[bundle.PrincipalVar].Type, action.Principals},
		{"resource", uids[bundle.ResourceVar].Type, action.Resources},
	} {
		if !slices.Contains(of.list, of.typ) {
			to.note(d.at(
				"the schema declares action "+quoted+" for no "+of.part+" of type "+quoteShortened(d.wire(of.part))+
					"; it declares it for "+d.wireNames(of.list),
				of.part, "type",
			))
		}
	}
}
