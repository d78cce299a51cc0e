package pdp

import (
	"time"

	"github.com/cedar-policy/cedar-go/types"

	"policy-service/evaluation"
)

// inquiry puts the questions of one call to one bundle: a single request, the items of a
// batch one after the other, or the candidates of a search. It makes each question, and
// keeps the parts that the next question can take over: items of a batch share what they
// inherit, and candidates of a search everything but the candidate. All its questions are of
// one tenant, one caller and one reading of the clock.
type inquiry struct {
	bundle *Bundle
	// request is the one in question, and changes from one question to the next.
	request evaluation.Request
	asker   evaluation.Asker
	now     time.Time
	explain bool // have decisions explained
	// approved is what policies see as context.pdp.approved.
	approved bool
	// review is set if the question is who may decide about an approval.
	review review
	// tells has decisions say what in the request does not fit.
	tells bool
	// inherits says which parts of the request the next questions have, too. Such a part is
	// not given up for one that only this question has.
	inherits evaluation.Inherited
	// converted is how much was converted so far, in bytes of JSON.
	converted int
	keeps     struct {
		entities [variables]kept[entityPiece]
		one      kept[entityPiece] // the entity that is both subject and resource
		context  kept[contextPiece]
		misfits  [variables]kept[[]evaluation.Mismatch] // the context's in the place of the action's
		fit      kept[bool]
		up       [variables]struct {
			set  bool
			sent evaluation.Object
			lineage
		}
	}
}

// kept is one part of a question, for the next question that has the same.
type kept[T any] struct {
	set, shared bool
	of          parts
	made        T
	err         error
}

// parts are what a part of a question is made of. Objects are the same if they share their
// members: comparing what is in them would cost more than it saves.
type parts struct {
	uid                 types.EntityUID
	sent, more          evaluation.Object
	principal, resource types.EntityType
}

func (p *parts) same(as *parts) bool {
	return p.uid == as.uid && p.sent.Same(as.sent) && p.more.Same(as.more) && p.principal == as.principal && p.resource == as.resource
}

// get returns what was made of the same parts before, or else makes it. Shared is what the
// next questions have, too.
func (k *kept[T]) get(of parts, shared bool, make func() (T, error)) (T, error) {
	if k.set && k.of.same(&of) {
		return k.made, k.err
	}
	made, err := make()
	if !k.set || shared || !k.shared {
		*k = kept[T]{set: true, shared: shared, of: of, made: made, err: err}
	}
	return made, err
}

// converts counts what is converted.
func (in *inquiry) converts(parts ...evaluation.Object) {
	for _, part := range parts {
		in.converted += part.Size()
	}
}

// shares reports whether the next questions have a part of this one, too; in the place of the
// action's is the context.
func (in *inquiry) shares(of variable) bool {
	switch of {
	case principalVar:
		return in.inherits.Subject
	case resourceVar:
		return in.inherits.Resource
	}
	return in.inherits.Context
}

// entity is the subject or the resource.
func (in *inquiry) entity(v *view, of variable, uid types.EntityUID, sent evaluation.Object) (entityPiece, error) {
	return in.keeps.entities[of].get(parts{uid: uid, sent: sent}, in.shares(of), func() (entityPiece, error) {
		in.converts(sent)
		path := "subject"
		if of == resourceVar {
			path = "resource"
		}
		return seenEntity(in.bundle, v, uid, sent, path, nil)
	})
}

// oneEntity is the entity that is both subject and resource.
func (in *inquiry) oneEntity(v *view, uid types.EntityUID) (entityPiece, error) {
	subject, resource := in.request.Subject.Properties, in.request.Resource.Properties
	return in.keeps.one.get(parts{uid: uid, sent: subject, more: resource}, in.inherits.Subject && in.inherits.Resource, func() (entityPiece, error) {
		in.converts(subject, resource)
		both, onlyResource, err := oneEntity(subject, resource)
		if err != nil {
			return entityPiece{}, err
		}
		return seenEntity(in.bundle, v, uid, both, "subject", onlyResource)
	})
}

// contextOf is the context with an action.
func (in *inquiry) contextOf(action types.EntityUID) (contextPiece, error) {
	of := parts{sent: in.request.Context, more: in.request.Action.Properties}
	if in.bundle.schema != nil { // without one the context is the same for every action
		of.uid = action
	}
	return in.keeps.context.get(of, in.inherits.Context, func() (contextPiece, error) {
		in.converts(of.sent, of.more)
		return in.makeContext(action)
	})
}

// misfit notes what does not fit in one part of the request. All that is noted of a part
// depends on the members of that part alone.
func (in *inquiry) misfit(of variable, made parts, to *mismatches, find func(*mismatches)) {
	found, _ := in.keeps.misfits[of].get(made, in.shares(of), func() ([]evaluation.Mismatch, error) {
		in.converts(made.sent, made.more)
		part := mismatches{b: to.b, v: to.v, r: to.r}
		find(&part)
		return part.found, nil
	})
	for _, one := range found {
		to.note(one)
	}
}

// fits reports whether the question fits the schema. For one action and one context only the
// types can make a difference.
func (in *inquiry) fits(q *question) bool {
	s, r := in.bundle.schema, &in.request
	of := parts{
		uid:       q.uids[actionVar],
		sent:      r.Context,
		more:      r.Action.Properties,
		principal: q.uids[principalVar].Type,
		resource:  q.uids[resourceVar].Type,
	}
	fits, _ := in.keeps.fit.get(of, in.inherits.Context, func() (bool, error) {
		in.converts(r.Context)
		return s.fitsRequest(q.request()), nil
	})
	return fits && s.allows(q.uids[principalVar]) && s.allows(q.uids[resourceVar])
}

// lineages finds the ancestors of the question's three variables. Ancestors that were found
// before hold as long as none of the other variables is among them: only those can have other
// parents in another request.
func (in *inquiry) lineages(q *question) {
	for n, uid := range q.uids {
		sent, up := q.sentParents(variable(n)), &in.keeps.up[n]
		if up.set && up.uid == uid && up.sent.Same(sent) && !reaches(&up.lineage, q, variable(n)) {
			q.up[n] = up.lineage
			continue
		}
		q.up[n] = lineageOf(uid, q.entities)
		up.set, up.sent, up.lineage = !reaches(&q.up[n], q, variable(n)), sent, q.up[n]
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

// reaches reports whether the subject or the resource is among the ancestors of another
// variable.
func reaches(l *lineage, q *question, of variable) bool {
	return of != principalVar && l.in(q.uids[principalVar]) || of != resourceVar && l.in(q.uids[resourceVar])
}
