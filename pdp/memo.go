package pdp

import (
	"github.com/cedar-policy/cedar-go/types"

	"policy-service/evaluation"
)

// memo keeps what one decision can take over from the one before: items of a
// batch share what they inherit, and candidates of a search everything but the
// candidate. A memo belongs to one bundle, one view, one caller and one reading
// of the clock. A nil memo keeps nothing.
type memo struct {
	// converted is how much was converted, in bytes of JSON, over and over again included.
	converted int
	// inherits says what the question shares with others: that is not given up for what
	// it alone has.
	inherits evaluation.Inherited
	entities [variables]struct {
		slot
		uid  types.EntityUID
		sent evaluation.Object
		entityPiece
		err error
	}
	one struct { // that is subject and resource
		slot
		uid               types.EntityUID
		subject, resource evaluation.Object
		entityPiece
		err error
	}
	ctx struct {
		slot
		action         types.EntityUID
		sent, ofAction evaluation.Object
		contextPiece
		err error
	}
	misfits [variables]struct { // of the context, in the place of an action's
		slot
		uid            types.EntityUID
		sent, ofAction evaluation.Object
		found          []evaluation.Mismatch
	}
	fit struct {
		slot
		action              types.EntityUID
		sent, ofAction      evaluation.Object
		principal, resource types.EntityType
		ok                  bool
	}
	up [variables]struct {
		set  bool
		sent evaluation.Object
		lineage
	}
}

// converts counts what is converted.
func (m *memo) converts(parts ...evaluation.Object) {
	for _, part := range parts {
		m.converted += part.Size()
	}
}

// slot is a place for one thing that was found.
type slot struct{ set, shared bool }

// take reports whether the place is for something that was found now, and makes it its.
func (s *slot) take(shared bool) bool {
	if s.set && s.shared && !shared {
		return false
	}
	s.set, s.shared = true, shared
	return true
}

func (m *memo) entity(b *Bundle, v *view, of variable, uid types.EntityUID, sent evaluation.Object) (entityPiece, error) {
	if m != nil {
		if e := &m.entities[of]; e.set && e.uid == uid && e.sent.Same(sent) {
			return e.entityPiece, e.err
		}
		m.converts(sent)
	}
	path := "subject"
	if of == resourceVar {
		path = "resource"
	}
	p, err := b.entity(v, uid, sent, path, nil)
	if m != nil && m.entities[of].take(m.shares(of)) {
		e := &m.entities[of]
		e.uid, e.sent, e.entityPiece, e.err = uid, sent, p, err
	}
	return p, err
}

func (m *memo) oneEntity(b *Bundle, v *view, uid types.EntityUID, subject, resource evaluation.Object) (entityPiece, error) {
	if m != nil {
		if e := &m.one; e.set && e.uid == uid && e.subject.Same(subject) && e.resource.Same(resource) {
			return e.entityPiece, e.err
		}
		m.converts(subject, resource)
	}
	p, err := b.oneEntity(v, uid, subject, resource)
	if m != nil && m.one.take(m.inherits.Subject && m.inherits.Resource) {
		e := &m.one
		e.uid, e.subject, e.resource, e.entityPiece, e.err = uid, subject, resource, p, err
	}
	return p, err
}

func (m *memo) context(b *Bundle, call *Call, action types.EntityUID) (contextPiece, error) {
	sent, ofAction := call.Request.Context, call.Request.Action.Properties
	// Only a schema makes another context of it for another action.
	if m != nil && m.ctx.set && (m.ctx.action == action || b.schema == nil) && m.ctx.sent.Same(sent) && m.ctx.ofAction.Same(ofAction) {
		return m.ctx.contextPiece, m.ctx.err
	}
	if m != nil {
		m.converts(sent, ofAction)
	}
	p, err := b.askContext(call, action)
	if m != nil && m.ctx.take(m.inherits.Context) {
		c := &m.ctx
		c.action, c.sent, c.ofAction, c.contextPiece, c.err = action, sent, ofAction, p, err
	}
	return p, err
}

// misfit notes what does not fit in a part of a request, or what was found in the same
// part before. All that is said of a part is said of its own members.
func (m *memo) misfit(of variable, uid types.EntityUID, sent, ofAction evaluation.Object, to *mismatches, find func(*mismatches)) {
	if m == nil {
		find(to)
		return
	}
	e := &m.misfits[of]
	found := e.found
	if !e.set || e.uid != uid || !e.sent.Same(sent) || !e.ofAction.Same(ofAction) {
		m.converts(sent, ofAction)
		part := mismatches{b: to.b, v: to.v, r: to.r}
		find(&part)
		found = part.found
		if e.take(m.shares(of)) {
			e.uid, e.sent, e.ofAction, e.found = uid, sent, ofAction, found
		}
	}
	for _, one := range found {
		to.note(one)
	}
}

// shares reports whether a part of the question is one that others have, too; in the place
// of the action's is the context.
func (m *memo) shares(of variable) bool {
	return [variables]bool{principalVar: m.inherits.Subject, actionVar: m.inherits.Context, resourceVar: m.inherits.Resource}[of]
}

// fits reports whether the question fits the schema. With one action and one context only
// the types can make a difference.
func (m *memo) fits(s *schemaOf, r *evaluation.Request, q *question) bool {
	action, principal, resource := q.uids[actionVar], q.uids[principalVar].Type, q.uids[resourceVar].Type
	allowed := s.allows(q.uids[principalVar]) && s.allows(q.uids[resourceVar])
	if m != nil {
		f := &m.fit
		if f.set && f.action == action && f.sent.Same(r.Context) && f.ofAction.Same(r.Action.Properties) && f.principal == principal && f.resource == resource {
			return f.ok && allowed
		}
		m.converts(r.Context)
	}
	ok := s.fitsRequest(q)
	if m != nil && m.fit.take(m.inherits.Context) {
		f := &m.fit
		f.action, f.sent, f.ofAction, f.principal, f.resource, f.ok = action, r.Context, r.Action.Properties, principal, resource, ok
	}
	return ok && allowed
}

// lineages finds the ancestors of the question's three variables. One that was
// found before holds as long as none of the others is among it: only those can
// have other parents in another request.
func (m *memo) lineages(q *question) {
	for n, uid := range q.uids {
		sent := q.sentParents(variable(n))
		if m != nil {
			if up := &m.up[n]; up.set && up.uid == uid && up.sent.Same(sent) && !up.reaches(q, variable(n)) {
				q.up[n] = up.lineage
				continue
			}
		}
		q.up[n] = lineageOf(uid, q.entities)
		if m != nil {
			up := &m.up[n]
			up.set, up.sent, up.lineage = !q.up[n].reaches(q, variable(n)), sent, q.up[n]
		}
	}
}

// sentParents is what, besides the store, an entity's parents depend on.
func (q *question) sentParents(of variable) evaluation.Object {
	switch of {
	case principalVar:
		return q.entities.origin[0].sent
	case resourceVar:
		return q.entities.origin[1].sent
	}
	return evaluation.Object{}
}

// reaches reports whether subject or resource, where it is not the variable
// itself, is among its ancestors.
func (l *lineage) reaches(q *question, of variable) bool {
	return of != principalVar && l.in(q.uids[principalVar]) || of != resourceVar && l.in(q.uids[resourceVar])
}
