// Package engine puts questions to a bundle. An [Inquiry] asks for one call; [Inquiry.Judge]
// puts its request to the policies, and [Verdict.Answer] is the decision that comes of it.
//
// Read inquiry.go first (what the questions of one call share), then cedar.go (a question, and
// what Cedar's answers mean, with the fail-safe rules), convert.go (JSON values become Cedar
// values, or are unusable), entities.go (what is stored and what was sent become one),
// oblige.go, explain.go and mismatch.go (what an answer says besides), candidates.go (what a
// search has to ask about), approval.go and reviewer.go (what waits for a person, and which
// person may decide), measure.go (what each policy takes).
//
// Every verdict is cedar-go's. The package reads no clock, records nothing and knows no
// approval: all that a decision depends on stands in the Inquiry and in the bundle.
package engine

import (
	"time"

	"github.com/cedar-policy/cedar-go/types"

	"policy-service/evaluation"
	"policy-service/pdp/internal/bundle"
)

// Inquiry puts the questions of one call to one bundle: a single request, the items of a
// batch one after the other, or the candidates of a search. It makes each question, and
// keeps the parts that the next question can take over: items of a batch share what they
// inherit, and candidates of a search everything but the candidate. All its questions are of
// one tenant, one caller and one reading of the clock.
type Inquiry struct {
	Bundle *bundle.Bundle
	// Request is the one in question, and changes from one question to the next.
	Request evaluation.Request
	Asker   evaluation.Asker
	Now     time.Time
	Explain bool // have decisions explained
	// Approved is what policies see as context.pdp.approved.
	Approved bool
	// review is set if the question is who may decide about an approval.
	review bundle.Review
	// Tells has decisions say what in the request does not fit.
	Tells bool
	// Inherits says which parts of the request the next questions have, too. Such a part is
	// not given up for one that only this question has.
	Inherits evaluation.Inherited
	// Converted is how much was converted so far, in bytes of JSON.
	Converted int
	keeps     struct {
		entities [bundle.Variables]kept[entityPiece]
		one      kept[entityPiece] // the entity that is both subject and resource
		context  kept[contextPiece]
		misfits  [bundle.Variables]kept[[]evaluation.Mismatch] // the context's in the place of the action's
		fit      kept[bool]
		up       [bundle.Variables]struct {
			set  bool
			sent evaluation.Object
			bundle.Lineage
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
func (in *Inquiry) converts(parts ...evaluation.Object) {
	for _, part := range parts {
		in.Converted += part.Size()
	}
}

// shares reports whether the next questions have a part of this one, too; in the place of the
// action's is the context.
func (in *Inquiry) shares(of bundle.Variable) bool {
	switch of {
	case bundle.PrincipalVar:
		return in.Inherits.Subject
	case bundle.ResourceVar:
		return in.Inherits.Resource
	}
	return in.Inherits.Context
}

// entity is the subject or the resource.
func (in *Inquiry) entity(v *bundle.View, of bundle.Variable, uid types.EntityUID, sent evaluation.Object) (entityPiece, error) {
	return in.keeps.entities[of].get(parts{uid: uid, sent: sent}, in.shares(of), func() (entityPiece, error) {
		in.converts(sent)
		path := "subject"
		if of == bundle.ResourceVar {
			path = "resource"
		}
		return seenEntity(in.Bundle, v, uid, sent, path, nil)
	})
}

// oneEntity is the entity that is both subject and resource.
func (in *Inquiry) oneEntity(v *bundle.View, uid types.EntityUID) (entityPiece, error) {
	subject, resource := in.Request.Subject.Properties, in.Request.Resource.Properties
	return in.keeps.one.get(parts{uid: uid, sent: subject, more: resource}, in.Inherits.Subject && in.Inherits.Resource, func() (entityPiece, error) {
		in.converts(subject, resource)
		both, onlyResource, err := oneEntity(subject, resource)
		if err != nil {
			return entityPiece{}, err
		}
		return seenEntity(in.Bundle, v, uid, both, "subject", onlyResource)
	})
}

// contextOf is the context with an action.
func (in *Inquiry) contextOf(action types.EntityUID) (contextPiece, error) {
	of := parts{sent: in.Request.Context, more: in.Request.Action.Properties}
	if in.Bundle.Schema != nil { // without one the context is the same for every action
		of.uid = action
	}
	return in.keeps.context.get(of, in.Inherits.Context, func() (contextPiece, error) {
		in.converts(of.sent, of.more)
		return in.makeContext(action)
	})
}

// misfit notes what does not fit in one part of the request. All that is noted of a part
// depends on the members of that part alone.
func (in *Inquiry) misfit(of bundle.Variable, made parts, to *mismatches, find func(*mismatches)) {
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
func (in *Inquiry) fits(q *Question) bool {
	s, r := in.Bundle.Schema, &in.Request
	of := parts{
		uid:       q.Uids[bundle.ActionVar],
		sent:      r.Context,
		more:      r.Action.Properties,
		principal: q.Uids[bundle.PrincipalVar].Type,
		resource:  q.Uids[bundle.ResourceVar].Type,
	}
	fits, _ := in.keeps.fit.get(of, in.Inherits.Context, func() (bool, error) {
		in.converts(r.Context)
		return s.FitsRequest(q.request()), nil
	})
	return fits && s.Allows(q.Uids[bundle.PrincipalVar]) && s.Allows(q.Uids[bundle.ResourceVar])
}

// Lineages finds the ancestors of the question's three variables. Ancestors that were found
// before hold as long as none of the other variables is among them: only those can have other
// parents in another request.
func (in *Inquiry) Lineages(q *Question) {
	for n, uid := range q.Uids {
		sent, up := q.sentParents(bundle.Variable(n)), &in.keeps.up[n]
		if up.set && up.Uid == uid && up.sent.Same(sent) && !reaches(&up.Lineage, q, bundle.Variable(n)) {
			q.Up[n] = up.Lineage
			continue
		}
		q.Up[n] = bundle.LineageOf(uid, q.Entities)
		up.set, up.sent, up.Lineage = !reaches(&q.Up[n], q, bundle.Variable(n)), sent, q.Up[n]
	}
}

// sentParents is what, besides the store, an entity's parents depend on.
func (q *Question) sentParents(of bundle.Variable) evaluation.Object {
	switch of {
	case bundle.PrincipalVar:
		return q.Entities.Origin[0].sent
	case bundle.ResourceVar:
		return q.Entities.Origin[1].sent
	}
	return evaluation.Object{}
}

// reaches reports whether the subject or the resource is among the ancestors of another
// variable.
func reaches(l *bundle.Lineage, q *Question, of bundle.Variable) bool {
	return of != bundle.PrincipalVar && l.In(q.Uids[bundle.PrincipalVar]) || of != bundle.ResourceVar && l.In(q.Uids[bundle.ResourceVar])
}
