package engine

import (
	"context"
	"slices"

	"policy-service/evaluation"
	"policy-service/pdp/internal/bundle"
)

// Decidable reports whether any permit may let a person decide about an approval: some person, by some way, at some time.
// False is certain. It is true also if a forbid, or a rule about one's own requests, bars every person, and if the question
// cannot be put to the policies.
func Decidable(ctx context.Context, in Inquiry, a Reviewed) (bool, error) {
	if in.Bundle == nil {
		return true, ErrNoBundle
	}
	// No condition that reads the principal is evaluated, so an entity of any type stands for the person.
	anybody := evaluation.Ref{Type: string(in.Bundle.Config.ApprovalType)}
	r, err := NewReviewer(in, Approver{Entity: anybody})
	if err != nil {
		return true, err
	}
	if ok, err := r.makeQuestion(a); !ok || err != nil {
		return true, err
	}
	v, err := r.inquiry.view()
	if err != nil {
		return true, err
	}
	uids, ok := r.inquiry.uids()
	if !ok {
		return true, nil
	}
	q := &Question{Entities: &Overlay{Store: v.Store}, Uids: uids}
	made, err := r.inquiry.entity(v, bundle.ResourceVar, uids[bundle.ResourceVar])
	if err != nil {
		return true, err
	}
	q.Entities.Resource = made.entity
	for _, of := range []bundle.Variable{bundle.ActionVar, bundle.ResourceVar} {
		q.Up[of] = bundle.LineageOf(uids[of], q.Entities)
	}
	e := explainer{ctx: ctx, q: q, request: q.request(), open: ofPerson}
	for _, p := range v.Policies {
		if p.Forbids() || passesOver(v, p) || !survives(p, bundle.PrincipalVar, &q.Up) {
			continue
		}
		if e.verdicts(conditionsOf(p), nil).may(satisfied) || ctx.Err() != nil {
			return true, ctx.Err()
		}
	}
	return false, nil
}

// ofPerson reports whether a term reads which person decides, or how or when.
func ofPerson(t *bundle.Term) bool {
	principal := bundle.VariableNames[bundle.PrincipalVar]
	return t.Path.Root == principal || t.Path.Root == "context" ||
		t.Op == bundle.OpTest && t.Test.Of == bundle.PrincipalVar || slices.ContainsFunc(t.Args, ofPerson)
}
