package engine

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go/types"

	"policy-service/evaluation"
	"policy-service/pdp/internal/bundle"
)

// Candidates finds the candidates of a search. What is wrong with the rest of the
// request is an [*evaluation.Error], also if there are none.
func (in *Inquiry) Candidates(ctx context.Context, kind evaluation.SearchKind) (*candidates, error) {
	b, r := in.Bundle, &in.Request
	v, err := in.view()
	if err != nil {
		return nil, err
	}
	principal, ok1 := b.Config.EntityType(r.Subject.Type)
	resource, ok2 := b.Config.EntityType(r.Resource.Type)
	if !ok1 || !ok2 {
		return &candidates{}, nil
	}
	q := &Question{Entities: &Overlay{Store: v.Store}, Uids: [bundle.Variables]types.EntityUID{
		bundle.PrincipalVar: {Type: principal, ID: types.String(r.Subject.ID)},
		bundle.ActionVar:    {Type: b.Config.ActionType, ID: types.String(r.Action.Name)},
		bundle.ResourceVar:  {Type: resource, ID: types.String(r.Resource.ID)},
	}}
	of := bundle.PrincipalVar
	switch kind {
	case evaluation.ActionSearch:
		if err := in.askEntities(v, q); err != nil {
			return nil, err
		}
		return &candidates{own: v.Actions}, in.contextOfSome(ctx, v.Actions)
	case evaluation.ResourceSearch:
		of = bundle.ResourceVar
		p, err := in.entity(v, bundle.PrincipalVar, q.Uids[bundle.PrincipalVar], r.Subject.Properties)
		if err != nil {
			return nil, err
		}
		q.Entities.Principal = p.entity
	default:
		p, err := in.entity(v, bundle.ResourceVar, q.Uids[bundle.ResourceVar], r.Resource.Properties)
		if err != nil {
			return nil, err
		}
		q.Entities.Resource = p.entity
	}
	if _, err := in.contextOf(q.Uids[bundle.ActionVar]); err != nil {
		return nil, err
	}
	return candidatesFor(v, q, of), nil
}

// contextOfSome says what is wrong with a context that is malformed for every
// action that the schema declares: an evaluation of any of them would say so too.
func (in *Inquiry) contextOfSome(ctx context.Context, actions []string) error {
	var first error
	b := in.Bundle
	for _, name := range actions {
		if err := ctx.Err(); err != nil {
			return err
		}
		action := types.EntityUID{Type: b.Config.ActionType, ID: types.String(name)}
		if _, err := in.contextOf(action); err != nil {
			if first == nil {
				first = err
			}
		} else if b.Schema == nil || b.Schema.ContextOf(action) != nil {
			return nil
		}
	}
	return first
}

// candidatesFor are the entities of the searched type that a permit could apply
// to: those that the surviving permits name, and all that is below them; or all
// of the type, where a surviving permit names none.
func candidatesFor(v *bundle.View, q *Question, of bundle.Variable) *candidates {
	typ := q.Uids[of].Type
	all := &candidates{own: v.Store.Ids[typ]}
	if v.Store.Root != nil {
		all.root = v.Store.Root.Ids[typ]
	}
	if v.Index == nil {
		return all // see Bundle.WithoutIndex
	}
	var up bundle.Lineages
	for n := range up {
		if bundle.Variable(n) != of {
			up[n] = bundle.LineageOf(q.Uids[n], q.Entities)
		}
	}
	// What == names is apart: what is below it was not looked for.
	named, walked := map[types.EntityUID]struct{}{}, map[types.EntityUID]struct{}{}
	for _, p := range v.Policies {
		if p.Forbids() || !survives(p, of, &up) {
			continue
		}
		t, ok := naming(p, of)
		if !ok {
			return all
		}
		for _, uid := range t.Uids {
			if t.Eq {
				named[uid] = struct{}{}
				continue
			}
			q.below(uid, walked)
		}
		if 2*(len(named)+len(walked)) > all.Len() {
			return all // nearly everything: sorting it out would cost more than asking
		}
	}
	maps.Copy(named, walked)
	few := &candidates{}
	for uid := range named {
		if _, ok := v.Store.Get(uid); ok && uid.Type == typ {
			few.own = append(few.own, string(uid.ID))
		}
	}
	slices.Sort(few.own)
	return few
}

// survives reports whether a policy's tests of the variables that are not
// searched for hold.
func survives(p *bundle.Policy, of bundle.Variable, up *bundle.Lineages) bool {
	for _, tests := range [][]bundle.ScopeTest{p.Facts.Scope, p.Facts.Leading} {
		for i := range tests {
			if t := &tests[i]; t.Of != of && !up[t.Of].Holds(t) {
				return false
			}
		}
	}
	return true
}

// naming is a test of a policy that names entities, the one that names fewest.
func naming(p *bundle.Policy, of bundle.Variable) (best bundle.ScopeTest, ok bool) {
	for _, tests := range [][]bundle.ScopeTest{p.Facts.Scope, p.Facts.Leading} {
		for _, t := range tests {
			if t.Of == of && t.Uids != nil && (!ok || t.Eq && !best.Eq || t.Eq == best.Eq && len(t.Uids) < len(best.Uids)) {
				best, ok = t, true
			}
		}
	}
	return best, ok
}

// below adds an entity and all that is below it, as this request sees it: the
// entities it sends may have other parents than the stored ones, so whatever is
// sent counts as below everything; it is asked like any other candidate.
func (q *Question) below(uid types.EntityUID, walked map[types.EntityUID]struct{}) {
	var todo []types.EntityUID
	add := func(uids ...types.EntityUID) {
		for _, uid := range uids {
			if _, ok := walked[uid]; !ok {
				walked[uid] = struct{}{}
				todo = append(todo, uid)
			}
		}
	}
	add(uid, q.Entities.Principal.UID, q.Entities.Resource.UID)
	for len(todo) > 0 {
		next := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for s := q.Entities.Store; s != nil; s = s.Root {
			add(s.Children[next]...)
		}
	}
}

// candidates are ids in their order: those of a tenant and those of the root,
// which have none in common.
type candidates struct{ own, root []string }

func (c *candidates) Len() int { return len(c.own) + len(c.root) }

func (c *candidates) Any() bool { return c.Len() > 0 }

func (c *candidates) Skip(after *string) {
	if after == nil {
		return
	}
	for _, ids := range []*[]string{&c.own, &c.root} {
		i, found := slices.BinarySearch(*ids, *after)
		if found {
			i++
		}
		*ids = (*ids)[i:]
	}
}

func (c *candidates) Next() (string, bool) {
	ids := &c.own
	if len(c.own) == 0 || len(c.root) > 0 && strings.Compare(c.root[0], c.own[0]) < 0 {
		ids = &c.root
	}
	if len(*ids) == 0 {
		return "", false
	}
	id := (*ids)[0]
	*ids = (*ids)[1:]
	return id, true
}
