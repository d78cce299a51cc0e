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
	entities [variables]struct {
		set  bool
		uid  types.EntityUID
		sent evaluation.Object
		entityPiece
	}
	ctx struct {
		set            bool
		action         types.EntityUID
		sent, ofAction evaluation.Object
		contextPiece
	}
	fit struct {
		set                 bool
		principal, resource types.EntityType
		ok                  bool
	}
	up [variables]struct {
		set  bool
		sent evaluation.Object
		lineage
	}
}

func (m *memo) entity(b *Bundle, v *view, of variable, uid types.EntityUID, sent evaluation.Object) (entityPiece, error) {
	if m != nil {
		if e := &m.entities[of]; e.set && e.uid == uid && e.sent.Same(sent) {
			return e.entityPiece, nil
		}
	}
	path := "subject"
	if of == resourceVar {
		path = "resource"
	}
	p, err := b.entity(v, uid, sent, path, nil)
	if m != nil && err == nil {
		e := &m.entities[of]
		e.set, e.uid, e.sent, e.entityPiece = true, uid, sent, p
	}
	return p, err
}

func (m *memo) context(b *Bundle, call *Call, action types.EntityUID) (contextPiece, error) {
	sent, ofAction := call.Request.Context, call.Request.Action.Properties
	if m != nil && m.ctx.set && m.ctx.action == action && m.ctx.sent.Same(sent) && m.ctx.ofAction.Same(ofAction) {
		return m.ctx.contextPiece, nil
	}
	p, err := b.askContext(call, action)
	if m != nil {
		m.fit.set = false
	}
	if m != nil && err == nil {
		m.ctx.set, m.ctx.action, m.ctx.sent, m.ctx.ofAction, m.ctx.contextPiece = true, action, sent, ofAction, p
	}
	return p, err
}

// fits reports whether the question fits the schema. With the context of the
// question before, only the types can make a difference.
func (m *memo) fits(s *schemaOf, q *question) bool {
	principal, resource := q.uids[principalVar].Type, q.uids[resourceVar].Type
	if m != nil && m.fit.set && m.fit.principal == principal && m.fit.resource == resource {
		return m.fit.ok && s.allows(q.uids[principalVar]) && s.allows(q.uids[resourceVar])
	}
	ok := s.fitsRequest(q)
	if m != nil {
		m.fit.set, m.fit.principal, m.fit.resource, m.fit.ok = true, principal, resource, ok
	}
	return ok && s.allows(q.uids[principalVar]) && s.allows(q.uids[resourceVar])
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
