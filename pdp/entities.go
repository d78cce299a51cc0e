package pdp

import (
	"slices"

	"github.com/cedar-policy/cedar-go/types"

	"policy-service/evaluation"
)

// overlay is the store as one request sees it: subject and resource as they are
// in this request, everything else as stored.
type overlay struct {
	principal, resource types.Entity
	// how the attributes of the two came to be, for explain
	origin [2]origin
	store  *store
}

// Get implements types.EntityGetter.
func (o *overlay) Get(uid types.EntityUID) (types.Entity, bool) {
	switch uid {
	case o.principal.UID:
		return o.principal, true
	case o.resource.UID:
		return o.resource, true
	}
	return o.store.Get(uid)
}

// origin is where the attributes of an entity come from.
type origin struct {
	origins
	sent   evaluation.Object
	stored types.Entity
	known  bool // the store has the entity
	mode   attributeMode
}

// passesOver reports whether the value sent for a name does not count.
func (o *origin) passesOver(name string) bool {
	if !o.known || o.mode == request {
		return false
	}
	_, has := o.stored.Attributes.Get(types.String(name))
	return has || o.mode == stored
}

// entityPiece is one entity as a request sees it.
type entityPiece struct {
	piece
	origin
	entity types.Entity
}

// askEntities makes subject and resource of what is stored and what was sent.
func (in *inquiry) askEntities(v *view, q *question) error {
	r, principal, resource := &in.request, q.uids[principalVar], q.uids[resourceVar]
	if principal == resource {
		one, err := in.oneEntity(v, principal)
		if err == nil {
			q.see(v, one, one)
		}
		return err
	}
	p, err := in.entity(v, principalVar, principal, r.Subject.Properties)
	if err != nil {
		return err
	}
	s, err := in.entity(v, resourceVar, resource, r.Resource.Properties)
	q.see(v, p, s)
	return err
}

func (q *question) see(v *view, principal, resource entityPiece) {
	q.entities = &overlay{principal: principal.entity, resource: resource.entity, origin: [2]origin{principal.origin, resource.origin}, store: v.store}
	q.add(principal.piece)
	q.add(resource.piece)
}

func originOf(b *Bundle, v *view, uid types.EntityUID, sent evaluation.Object) origin {
	o := origin{sent: sent, mode: b.config.attributes[uid.Type]}
	if v.review == noReview || uid.Type != b.config.approvalType { // its id may be known by now, and somebody write an entity for it
		o.stored, o.known = v.store.Get(uid)
	}
	return o
}

// oneEntity unites what is said of an entity that is subject and resource. A
// user who edits himself must not give himself a role by sending it with the
// resource, so what only the resource sends is noted, sorted, to be left out.
func oneEntity(subject, resource evaluation.Object) (both evaluation.Object, onlyResource []string, err error) {
	both = subject.Beside(resource)
	for name, value := range resource.Members {
		own, ok := subject.Get(name)
		if !ok {
			onlyResource = append(onlyResource, name)
		} else if !sameValue(own, value) {
			return both, nil, evaluation.Malformed("subject and resource are one entity, and this property is sent with two values", "send it once, with the subject", "resource", "properties", name)
		}
	}
	return both, onlyResource, nil
}

// contains searches a sorted list: a request may send thousands of members.
func contains(sorted []string, name string) bool {
	_, ok := slices.BinarySearch(sorted, name)
	return ok
}

func sameValue(a, b evaluation.Value) bool {
	x, ok1 := untyped(a)
	y, ok2 := untyped(b)
	if ok1 && ok2 {
		return x.Equal(y)
	}
	return a.Equal(b)
}

// seenEntity is one entity as this request sees it.
func seenEntity(b *Bundle, v *view, uid types.EntityUID, sent evaluation.Object, path string, suspect []string) (entityPiece, error) {
	p := entityPiece{origin: originOf(b, v, uid, sent)}
	o, e := &p.origin, p.origin.stored
	e.UID = uid
	if !o.known && b.config.known[uid.Type] {
		p.refuse(evaluation.UnknownEntity)
	}
	parents, err := parentsOf(b, v, uid, o, path, suspect)
	if err != nil {
		return p, err
	}
	e.Parents = parents

	if o.sent.Len() > 0 {
		m := newMerger(b, o.stored.Attributes.Map(), b.attributesOf(uid.Type))
		m.lenient = uid.Type == b.config.approvalType
		if m.members == nil {
			m.members = make(types.RecordMap, o.sent.Len())
		}
		for name, value := range o.sent.Members {
			if o.passesOver(name) {
				continue
			}
			from := path
			if contains(suspect, name) {
				if m.knows(name) {
					m.unusable = append(m.unusable, name)
					delete(m.members, types.String(name))
					continue
				}
				from = "resource"
			}
			if err := m.take(name, value, from, "properties"); err != nil {
				return p, err
			}
		}
		e.Attributes = types.NewRecord(m.members)
		o.origins = m.origins
		p.add(m.piece())
	}
	if b.schema != nil && (!o.known || o.sent.Len() > 0) && !b.schema.fitsSent(e, o.known) {
		p.refuse(evaluation.SchemaMismatch)
	}
	p.entity = e
	return p, nil
}

// parentsOf are the entity's parents in this request: those stored, unless a sent
// attribute that gives parents is in force.
func parentsOf(b *Bundle, v *view, uid types.EntityUID, o *origin, path string, suspect []string) (types.EntityUIDSet, error) {
	rules := b.config.parents[uid.Type]
	sent := false
	for _, rule := range rules {
		value, ok := o.sent.Get(rule.attribute)
		if !ok {
			continue
		}
		passed := o.passesOver(rule.attribute)
		if contains(suspect, rule.attribute) {
			path = "resource" // it is the one that sends it
		}
		if _, ok := sentParents(value, rule.parent); !ok || !passed && contains(suspect, rule.attribute) {
			return o.stored.Parents, evaluation.Malformed("this property gives "+string(rule.parent)+" parents: it must be a string or an array of strings, sent with the subject where subject and resource are one", "send ids only", path, "properties", rule.attribute)
		}
		sent = sent || !passed
	}
	if !sent {
		return o.stored.Parents, nil
	}
	uids := slices.Collect(v.store.writtenParents(o.stored).All())
	for _, rule := range rules {
		if value, ok := o.sent.Get(rule.attribute); ok && !o.passesOver(rule.attribute) {
			more, _ := sentParents(value, rule.parent)
			uids = append(uids, more...)
		} else if value, ok := o.stored.Attributes.Get(types.String(rule.attribute)); ok {
			more, _ := storedParents(value, rule.parent)
			uids = append(uids, more...)
		}
	}
	return types.NewEntityUIDSet(uids...), nil
}

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
	return uids, v.Kind() == evaluation.Array
}
