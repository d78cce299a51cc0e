package engine

import (
	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"

	"policy-service/evaluation"
	"policy-service/pdp/internal/bundle"
)

// Open is a question about every entity of a type: its resource has no id, no attributes and no parents.
type Open struct {
	View     *bundle.View
	Request  cedar.Request
	Entities *Overlay
	Up       bundle.Lineages // of principal and action
	// Reason is set if the question cannot be put to the policies, whatever the resource is.
	Reason evaluation.Reason
	// Policies are those that a resource may be decided by, in the order of their ids. Any other policy is false for all of them.
	Policies bundle.PolicyList
	// AllowsUndeclared is set if an allow may come with obligations that the PEP has not declared.
	AllowsUndeclared bool
	q                *Question
}

// Open makes the question. The error is an [*evaluation.Error], or that there is no such tenant.
func (in *Inquiry) Open() (*Open, error) {
	if in.Bundle == nil {
		return nil, ErrNoBundle
	}
	v, err := in.view()
	if err != nil {
		return nil, err
	}
	q := &Question{Entities: &Overlay{Store: v.Store}}
	o := &Open{View: v, Entities: q.Entities, AllowsUndeclared: in.allowsUndeclared(), q: q}
	uids, ok := in.uids()
	if !ok {
		o.Reason = evaluation.UnknownType
		return o, nil
	}
	q.Uids = uids
	subject, err := in.entity(v, bundle.PrincipalVar, uids[bundle.PrincipalVar])
	if err != nil {
		return nil, err
	}
	q.take(bundle.PrincipalVar, &subject)
	context, err := in.contextOf(v, uids[bundle.ActionVar])
	if err != nil {
		return nil, err
	}
	q.Context = in.wholeContext(&context)
	q.add(context.piece)
	q.add(in.fit(v, q))
	o.Reason, o.Request = q.Reason, q.request()
	for _, of := range []bundle.Variable{bundle.PrincipalVar, bundle.ActionVar} {
		q.Up[of] = bundle.LineageOf(uids[of], q.Entities)
	}
	q.Up[bundle.ResourceVar].Uid.Type = uids[bundle.ResourceVar].Type
	o.Up = q.Up
	s := scratches.Get().(*bundle.Scratch)
	defer release(s)
	for _, n := range v.Index.FindOpen(&o.Up, s) {
		if p := v.Policies[n]; survives(p, bundle.ResourceVar, &o.Up) {
			o.Policies = append(o.Policies, p)
		}
	}
	return o, nil
}

// Below returns those of a type, among the stored entities and the principal, that are one of uids or below one. It reports false
// if there are more than most.
func (o *Open) Below(uids []types.EntityUID, typ types.EntityType, most int) (below []bundle.Lineage, ok bool) {
	walked := map[types.EntityUID]struct{}{}
	for _, uid := range uids {
		o.q.below(uid, walked)
	}
	for uid := range walked {
		if uid.Type != typ {
			continue
		}
		if len(below) == most {
			return nil, false
		}
		up := bundle.LineageOf(uid, o.Entities)
		for _, above := range uids {
			if up.In(above) {
				below = append(below, up)
				break
			}
		}
	}
	return below, true
}
