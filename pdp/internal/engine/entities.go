package engine

import (
	"iter"
	"slices"

	"github.com/cedar-policy/cedar-go/types"

	"policy-service/evaluation"
	"policy-service/pdp/internal/bundle"
)

// Overlay is the store as one request sees it: the subject and the resource as they are in this
// request, and everything else as stored.
type Overlay struct {
	Principal, Resource types.Entity
	// Origin says how the attributes of the two came to be, for explain.
	Origin [2]origin
	Store  *bundle.Store
}

// Get implements types.EntityGetter.
func (o *Overlay) Get(uid types.EntityUID) (types.Entity, bool) {
	switch uid {
	case o.Principal.UID:
		return o.Principal, true
	case o.Resource.UID:
		return o.Resource, true
	}
	return o.Store.Get(uid)
}

// of is the subject or the resource, and how its attributes came to be.
func (o *Overlay) of(variable bundle.Variable) (*types.Entity, *origin) {
	if variable == bundle.PrincipalVar {
		return &o.Principal, &o.Origin[0]
	}
	return &o.Resource, &o.Origin[1]
}

// Parents implements [bundle.ParentsGetter].
func (o *Overlay) Parents(uid types.EntityUID) types.EntityUIDSet {
	switch uid {
	case o.Principal.UID:
		return o.Principal.Parents
	case o.Resource.UID:
		return o.Resource.Parents
	}
	return o.Store.Parents(uid)
}

// origin says where the attributes of an entity come from.
type origin struct {
	origins
	sent   evaluation.Object
	Stored types.Entity
	Known  bool // the store has the entity
	mode   bundle.AttributeMode
}

// passesOver reports whether the value that was sent for a name does not count.
func (o *origin) passesOver(name string) bool {
	if !o.Known || o.mode == bundle.Request {
		return false
	}
	_, has := o.Stored.Attributes.Get(types.String(name))
	return has || o.mode == bundle.Stored
}

// entityPiece is one entity as a request sees it.
type entityPiece struct {
	piece
	origin
	entity types.Entity
}

// take gives the question its subject or its resource.
func (q *Question) take(of bundle.Variable, p *entityPiece) {
	entity, origin := q.Entities.of(of)
	*entity, *origin, q.Unusable.of[of] = p.entity, p.origin, p.unusable
	q.add(p.piece)
}

// askEntities makes the subject and the resource from the stored entities and the sent properties.
func (in *Inquiry) askEntities(v *bundle.View, q *Question) error {
	if q.Entities == nil {
		q.Entities = new(Overlay)
	}
	q.Entities.Store = v.Store
	if uid := q.Uids[bundle.PrincipalVar]; uid == q.Uids[bundle.ResourceVar] {
		p, err := in.oneEntity(v, uid)
		q.take(bundle.PrincipalVar, &p)
		q.take(bundle.ResourceVar, &p)
		return err
	}
	for _, of := range [...]bundle.Variable{bundle.PrincipalVar, bundle.ResourceVar} {
		p, err := in.entity(v, of, q.Uids[of])
		if err != nil {
			return err
		}
		q.take(of, &p)
	}
	return nil
}

// originOf returns where the attributes of an entity come from.
func originOf(b *bundle.Bundle, v *bundle.View, uid types.EntityUID, sent evaluation.Object) origin {
	o := origin{sent: sent, mode: b.Config.Attributes[uid.Type]}
	// An approval that is being decided about takes nothing from the store: its id may be known by
	// now, and an author could have written an entity for it.
	if v.Review == bundle.NoReview || uid.Type != b.Config.ApprovalType {
		o.Stored, o.Known = v.Store.Get(uid)
	}
	return o
}

// oneEntity unites the properties of an entity that is both subject and resource. Users who edit
// their own entity must not give themselves a role by sending it with the resource. So
// oneEntity also returns the names that only the resource sends, sorted, to be left out.
func oneEntity(subject, resource evaluation.Object) (both evaluation.Object, onlyResource []string, err error) {
	both = subject.Beside(resource)
	for name, value := range resource.Members {
		own, ok := subject.Get(name)
		if !ok {
			onlyResource = append(onlyResource, name)
		} else if !sameValue(own, value) {
			return both, nil, evaluation.Malformed(
				"subject and resource are one entity, and this property is sent with two values",
				"send it once, with the subject",
				"resource", "properties", name,
			)
		}
	}
	return both, onlyResource, nil
}

// contains searches a sorted list. The list is sorted because a request may send thousands of members.
func contains(sorted []string, name string) bool {
	_, ok := slices.BinarySearch(sorted, name)
	return ok
}

func sameValue(a, b evaluation.Value) bool {
	x, ok1 := Untyped(a)
	y, ok2 := Untyped(b)
	if ok1 && ok2 {
		return x.Equal(y)
	}
	return a.Equal(b)
}

// seenEntity makes one entity as this request sees it. part is the part of the request that has it. suspect are the
// names that only the resource sends, if the entity is both subject and resource.
func (in *Inquiry) seenEntity(
	v *bundle.View, uid types.EntityUID, sent evaluation.Object, part string, suspect []string, p *entityPiece,
) error {
	p.origin = originOf(in.Bundle, v, uid, sent)
	b, o, e, d := in.Bundle, &p.origin, &p.entity, describer{in, v}
	*e = o.Stored
	e.UID = uid
	if !o.Known && b.Config.Known[uid.Type] {
		p.refuse(evaluation.UnknownEntity, d.unknownEntity(uid, part))
	}
	parents, err := parentsOf(b, v, uid, o, part, suspect)
	if err != nil {
		return err
	}
	e.Parents = parents

	if o.sent.Len() > 0 {
		m := in.merger(v, string(uid.Type), b.AttributesOf(uid.Type))
		m.base, m.lenient = o.Stored.Attributes, uid.Type == b.Config.ApprovalType
		for name, value := range o.sent.Members {
			if o.passesOver(name) {
				continue
			}
			from := part
			if contains(suspect, name) {
				if m.canHold(name) {
					m.unusable = m.unusable.add([]string{name}, false)
					m.drop(name)
					m.misfits.note(m.at(
						"subject and resource are one entity, and only the resource sends this property; send it with the subject",
						"resource", "properties", name,
					))
					continue
				}
				from = "resource"
			}
			if err := m.convertMember(name, value, from, "properties"); err != nil {
				return err
			}
		}
		e.Attributes = m.record()
		o.origins = m.origins
		p.add(m.piece)
	}
	switch s := b.Schema; {
	case s == nil:
	case !s.Declares(uid.Type):
		p.refuse(evaluation.SchemaMismatch, d.undeclaredType(part))
	case !s.Allows(uid):
		p.refuse(evaluation.SchemaMismatch, d.noSuchID(uid, part))
	case (!o.Known || o.sent.Len() > 0) && !s.FitsSent(*e, o.Known):
		p.refuse(evaluation.SchemaMismatch)
		d.entity(uid, o, part, &p.misfits)
	}
	return nil
}

// parentsOf returns the entity's parents in this request. Those are the stored parents, unless the
// request sends an attribute that gives parents and counts.
func parentsOf(
	b *bundle.Bundle, v *bundle.View, uid types.EntityUID, o *origin, path string, suspect []string,
) (types.EntityUIDSet, error) {
	rules := b.Config.Parents[uid.Type]
	sent := false
	for _, rule := range rules {
		value, ok := o.sent.Get(rule.Attribute)
		if !ok {
			continue
		}
		passed := o.passesOver(rule.Attribute)
		if contains(suspect, rule.Attribute) {
			path = "resource" // only the resource sends the attribute
		}
		if _, ok := sentParents(value, rule.Parent); !ok || !passed && contains(suspect, rule.Attribute) {
			return o.Stored.Parents, evaluation.Malformed(
				"this property gives "+string(rule.Parent)+" parents: it must be a string or an array of strings, "+
					"sent with the subject where subject and resource are one",
				"send ids only",
				path, "properties", rule.Attribute,
			)
		}
		sent = sent || !passed
	}
	if !sent {
		return o.Stored.Parents, nil
	}
	uids := o.storedParents(v.Store.WrittenParents(o.Stored).All())
	for _, rule := range rules {
		if value, ok := o.sent.Get(rule.Attribute); ok && !o.passesOver(rule.Attribute) {
			more, _ := sentParents(value, rule.Parent)
			uids = append(uids, more...)
		} else if value, ok := o.Stored.Attributes.Get(types.String(rule.Attribute)); ok {
			more, _ := bundle.StoredParents(value, rule.Parent)
			uids = append(uids, o.storedParents(slices.Values(more))...)
		}
	}
	return types.NewEntityUIDSet(uids...), nil
}

// storedParents are those of the parents that the entity has in the store: one of them may not count
// there, and count in another store.
func (o *origin) storedParents(from iter.Seq[types.EntityUID]) (uids []types.EntityUID) {
	for uid := range from {
		if o.Stored.Parents.Contains(uid) {
			uids = append(uids, uid)
		}
	}
	return uids
}

// sentParents returns the parents that a sent attribute gives. It reports false if the value is
// neither a string nor an array of strings that Cedar can hold.
func sentParents(v evaluation.Value, parent types.EntityType) ([]types.EntityUID, bool) {
	if v.Kind() == evaluation.String {
		return []types.EntityUID{{Type: parent, ID: types.String(v.Text())}}, true
	}
	var uids []types.EntityUID
	for _, e := range v.Elements {
		if e.Kind() != evaluation.String {
			return nil, false
		}
		uids = append(uids, types.EntityUID{Type: parent, ID: types.String(e.Text())})
	}
	return uids, v.Kind() == evaluation.Array && v.Len() <= bundle.MostElements
}
