// Package engine puts questions to a bundle. An [Inquiry] asks for one call. [Inquiry.Judge]
// puts its request to the policies, and [Verdict.Answer] makes the decision.
//
// Read inquiry.go first: it has what the questions of one call share. Then read
//   - room.go: where an inquiry of one question lies;
//   - cedar.go: a question, and the meaning of Cedar's answers, with the fail-safe rules;
//   - convert.go: JSON values become Cedar values, or are unusable;
//   - entities.go: the stored and the sent attributes become one entity;
//   - oblige.go, explain.go and mismatch.go, with misfit.go and near.go: the obligations, the explanation
//     and the misfits of an answer;
//   - candidates.go: the candidates that a search has to ask about;
//   - approval.go and reviewer.go: which verdicts wait for a person, and which person may decide;
//   - own.go: who fulfils a request that is not their own;
//   - measure.go: how long each policy takes;
//   - open.go: a question about all entities of a type, of which a filter is made;
//   - outlook.go, with verdicts.go, unknown.go and settle.go: a request of which not all values are known, because the
//     caller does not know them yet or because masks hide them in a record.
//
// Every verdict comes from cedar-go. No decision reads a clock. The package records nothing and keeps
// no approval: everything that a decision depends on is in the Inquiry and in the bundle.
package engine

import (
	"time"

	"github.com/cedar-policy/cedar-go/types"

	"policy-service/evaluation"
	"policy-service/pdp/internal/bundle"
)

// Inquiry puts the questions of one call to one bundle: a single request, the items of a batch
// one after the other, or the candidates of a search. It makes each question. After
// [Inquiry.Keep] it keeps the parts that the next question can use again. Items of a batch share
// the parts that they inherit, and candidates of a search share everything but the candidate.
// All questions of an inquiry are of one tenant, one caller and one reading of the clock.
type Inquiry struct {
	Bundle *bundle.Bundle
	// Request is the request in question. It changes from one question to the next.
	Request evaluation.Request
	Asker   evaluation.Asker
	Now     time.Time
	Explain bool // decisions come with an explanation
	// Clauses is set if explanations have the clauses of policies.
	Clauses bool
	// Approved is the value that policies see as context.pdp.approved.
	Approved bool
	// Capability is the value that policies see as context.pdp.capability.
	Capability evaluation.Capability
	// Hidden are the places that masks hide, if the request comes from a record.
	Hidden []evaluation.Hidden
	// Masked reports if texts must not show the member of the context that names lead to, besides the members that are
	// secrets by their names. Nil is for no others.
	Masked func(path []string) bool
	// review is set if the question is who may decide about an approval.
	review bundle.Review
	// demanding is set if parents of [bundle.View.Demanding] alone count.
	demanding bool
	// NoMismatch is set if decisions need not name the places in the request that do not fit.
	NoMismatch bool
	// Inherits says which parts of the request the next questions have too. Such a part is kept
	// even if this question has another in its place.
	Inherits evaluation.Inherited
	// Converted is the size of all JSON that was converted since Keep, in bytes.
	Converted int
	// Renewed is what it cost, as so many bytes more, to make the contexts in which policies can see whom and what a
	// question is about: such a context is made for each question, from parts that are converted once.
	Renewed int
	keeps   struct {
		room     *Room // nil if the inquiry borrows none
		entities [bundle.Variables]*kept[entityPiece]
		one      *kept[entityPiece] // the entity that is both subject and resource
		context  *kept[contextPiece]
		fit      *kept[piece]
		up       *[bundle.Variables]ancestors
		unknown  *evaluation.Unknown // of which the next ones are
		settled  *[4]kept[settledPart]
		clauses  map[*bundle.Policy][]*condition
		looked   int // how often a name was looked for, in the place of another
		// without asks again where the root demands something: see [Inquiry.judgeDemand].
		without *Inquiry
	}
}

// ancestors are what a variable's were, for the next question about it.
type ancestors struct {
	set  bool
	sent evaluation.Object
	bundle.Lineage
}

// Keep has the inquiry keep parts of its questions for the next ones. A call with one question does without, because to
// keep its parts would cost up to a tenth of the decision.
func (in *Inquiry) Keep() {
	k := &in.keeps
	for n := range k.entities {
		k.entities[n] = new(kept[entityPiece])
	}
	k.one, k.context, k.fit = new(kept[entityPiece]), new(kept[contextPiece]), new(kept[piece])
	k.up = new([bundle.Variables]ancestors)
}

// keepUnknown has the inquiry keep what it finds out about unknown places, if it keeps anything, and about policies.
func (in *Inquiry) keepUnknown() {
	k := &in.keeps
	if k.clauses == nil {
		k.clauses = map[*bundle.Policy][]*condition{}
	}
	if k.up == nil {
		return
	}
	if k.settled == nil || k.unknown != in.Request.Unknown {
		k.unknown, k.settled = in.Request.Unknown, new([4]kept[settledPart])
	}
}

// kept is one part of a question, for the next question that has the same part. A nil one keeps nothing.
type kept[T any] struct {
	set, shared bool
	of          parts
	made        T
	err         error
}

// parts are what a part of a question is made from. Two objects count as the same only if they
// share their members, because a comparison of the members would cost more than it saves.
type parts struct {
	uid                 types.EntityUID
	sent, more          evaluation.Object
	principal, resource types.EntityType
}

func (p *parts) same(as *parts) bool {
	return p.uid == as.uid && p.sent.Same(as.sent) && p.more.Same(as.more) &&
		p.principal == as.principal && p.resource == as.resource
}

// get returns what was made from the same parts before, or else makes it. shared says that the
// next questions have this part too.
func (k *kept[T]) get(of parts, shared bool, make func() (T, error)) (T, error) {
	if k == nil {
		return make()
	}
	if k.set && k.of.same(&of) {
		return k.made, k.err
	}
	made, err := make()
	if !k.set || shared || !k.shared {
		*k = kept[T]{set: true, shared: shared, of: of, made: made, err: err}
	}
	return made, err
}

// countConverted adds to the size of what was converted.
func (in *Inquiry) countConverted(parts ...evaluation.Object) {
	if in.keeps.up == nil { // one question is bounded by its body
		return
	}
	for _, part := range parts {
		in.Converted += part.Size()
	}
}

// entity makes the subject or the resource as Cedar sees it. It is converted once for all items of a batch that share
// it.
func (in *Inquiry) entity(v *bundle.View, of bundle.Variable, uid types.EntityUID) (entityPiece, error) {
	part, sent, shared := "subject", in.Request.Subject.Properties, in.Inherits.Subject
	if of == bundle.ResourceVar {
		part, sent, shared = "resource", in.Request.Resource.Properties, in.Inherits.Resource
	}
	return in.keeps.entities[of].get(parts{uid: uid, sent: sent}, shared, func() (p entityPiece, err error) {
		in.countConverted(sent)
		err = in.seenEntity(v, uid, sent, part, nil, &p)
		return p, err
	})
}

// oneEntity makes the entity that is both subject and resource. The function oneEntity unites what both send; what only
// the resource sends is left out.
func (in *Inquiry) oneEntity(v *bundle.View, uid types.EntityUID) (entityPiece, error) {
	subject, resource := in.Request.Subject.Properties, in.Request.Resource.Properties
	of, shared := parts{uid: uid, sent: subject, more: resource}, in.Inherits.Subject && in.Inherits.Resource
	return in.keeps.one.get(of, shared, func() (p entityPiece, err error) {
		in.countConverted(subject, resource)
		both, onlyResource, err := oneEntity(subject, resource)
		if err == nil {
			err = in.seenEntity(v, uid, both, "subject", onlyResource, &p)
		}
		return p, err
	})
}

// contextOf makes the context for an action, as far as questions share it; see [Inquiry.wholeContext].
func (in *Inquiry) contextOf(v *bundle.View, action types.EntityUID) (contextPiece, error) {
	of := parts{sent: in.Request.Context, more: in.Request.Action.Properties}
	if in.Bundle.Schema != nil || action.ID == bundle.ApprovalAction { // else the context is the same for every action
		of.uid = action
	}
	return in.keeps.context.get(of, in.Inherits.Context, func() (made contextPiece, err error) {
		in.countConverted(of.sent, of.more)
		err = in.makeContext(v, action, &made)
		return made, err
	})
}

// fit is what the schema makes of the question. Among questions with the same action and
// the same context, only the types can make a difference, as the request writes them.
func (in *Inquiry) fit(v *bundle.View, q *Question) piece {
	r := &in.Request
	of := parts{
		uid:       q.Uids[bundle.ActionVar],
		sent:      r.Context,
		more:      r.Action.Properties,
		principal: types.EntityType(r.Subject.Type), // as the request writes it, because misfits name it so
		resource:  types.EntityType(r.Resource.Type),
	}
	made, _ := in.keeps.fit.get(of, in.Inherits.Context, func() (p piece, _ error) {
		in.countConverted(r.Context)
		if !in.Bundle.Schema.FitsRequest(q.request(), !v.SeesAllPDP) {
			p.refuse(evaluation.SchemaMismatch)
			describer{in, v}.request(&q.Uids, &p.misfits)
		}
		return p, nil
	})
	return made
}

// Lineages finds the ancestors of the question's three variables. Ancestors that were found
// before can be used again, unless the subject or the resource is among the ancestors of another
// variable: only those two can have other parents in another request.
func (in *Inquiry) Lineages(q *Question) {
	for n, uid := range q.Uids {
		if in.keeps.up == nil {
			q.Up[n] = bundle.LineageOf(uid, q.Entities)
			continue
		}
		sent, up := q.sentParents(bundle.Variable(n)), &in.keeps.up[n]
		if up.set && up.Uid == uid && up.sent.Same(sent) && !reaches(&up.Lineage, q, bundle.Variable(n)) {
			q.Up[n] = up.Lineage
			continue
		}
		q.Up[n] = bundle.LineageOf(uid, q.Entities)
		up.set, up.sent, up.Lineage = !reaches(&q.Up[n], q, bundle.Variable(n)), sent, q.Up[n]
	}
}

// sentParents returns the sent properties on which an entity's parents depend besides the store.
func (q *Question) sentParents(of bundle.Variable) evaluation.Object {
	if of == bundle.ActionVar {
		return evaluation.Object{}
	}
	_, o := q.Entities.of(of)
	return o.sent
}

// reaches reports whether the subject or the resource is among the ancestors of another
// variable.
func reaches(l *bundle.Lineage, q *Question, of bundle.Variable) bool {
	return of != bundle.PrincipalVar && l.In(q.Uids[bundle.PrincipalVar]) ||
		of != bundle.ResourceVar && l.In(q.Uids[bundle.ResourceVar])
}
