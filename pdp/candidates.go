package pdp

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go/types"

	"policy-service/evaluation"
)

// candidates finds the candidates of a search. What is wrong with the rest of the
// request is an [*evaluation.Error], also if there are none.
func (in *inquiry) candidates(ctx context.Context, kind evaluation.SearchKind) (*candidates, error) {
	b, r := in.bundle, &in.request
	v, err := in.view()
	if err != nil {
		return nil, err
	}
	principal, ok1 := b.config.entityType(r.Subject.Type)
	resource, ok2 := b.config.entityType(r.Resource.Type)
	if !ok1 || !ok2 {
		return &candidates{}, nil
	}
	q := &question{entities: &overlay{store: v.store}, uids: [variables]types.EntityUID{
		principalVar: {Type: principal, ID: types.String(r.Subject.ID)},
		actionVar:    {Type: b.config.actionType, ID: types.String(r.Action.Name)},
		resourceVar:  {Type: resource, ID: types.String(r.Resource.ID)},
	}}
	of := principalVar
	switch kind {
	case evaluation.ActionSearch:
		if err := in.askEntities(v, q); err != nil {
			return nil, err
		}
		return &candidates{own: v.actions}, in.contextOfSome(ctx, v.actions)
	case evaluation.ResourceSearch:
		of = resourceVar
		p, err := in.entity(v, principalVar, q.uids[principalVar], r.Subject.Properties)
		if err != nil {
			return nil, err
		}
		q.entities.principal = p.entity
	default:
		p, err := in.entity(v, resourceVar, q.uids[resourceVar], r.Resource.Properties)
		if err != nil {
			return nil, err
		}
		q.entities.resource = p.entity
	}
	if _, err := in.contextOf(q.uids[actionVar]); err != nil {
		return nil, err
	}
	return candidatesFor(v, q, of), nil
}

// contextOfSome says what is wrong with a context that is malformed for every
// action that the schema declares: an evaluation of any of them would say so too.
func (in *inquiry) contextOfSome(ctx context.Context, actions []string) error {
	var first error
	b := in.bundle
	for _, name := range actions {
		if err := ctx.Err(); err != nil {
			return err
		}
		action := types.EntityUID{Type: b.config.actionType, ID: types.String(name)}
		if _, err := in.contextOf(action); err != nil {
			if first == nil {
				first = err
			}
		} else if b.schema == nil || b.schema.contextOf(action) != nil {
			return nil
		}
	}
	return first
}

// candidatesFor are the entities of the searched type that a permit could apply
// to: those that the surviving permits name, and all that is below them; or all
// of the type, where a surviving permit names none.
func candidatesFor(v *view, q *question, of variable) *candidates {
	typ := q.uids[of].Type
	all := &candidates{own: v.store.ids[typ]}
	if v.store.root != nil {
		all.root = v.store.root.ids[typ]
	}
	if v.index == nil {
		return all // see Bundle.WithoutIndex
	}
	var up lineages
	for n := range up {
		if variable(n) != of {
			up[n] = lineageOf(q.uids[n], q.entities)
		}
	}
	// What == names is apart: what is below it was not looked for.
	named, walked := map[types.EntityUID]struct{}{}, map[types.EntityUID]struct{}{}
	for _, p := range v.policies {
		if p.forbids() || !survives(p, of, &up) {
			continue
		}
		t, ok := naming(p, of)
		if !ok {
			return all
		}
		for _, uid := range t.uids {
			if t.eq {
				named[uid] = struct{}{}
				continue
			}
			q.below(uid, walked)
		}
		if 2*(len(named)+len(walked)) > all.len() {
			return all // nearly everything: sorting it out would cost more than asking
		}
	}
	maps.Copy(named, walked)
	few := &candidates{}
	for uid := range named {
		if _, ok := v.store.Get(uid); ok && uid.Type == typ {
			few.own = append(few.own, string(uid.ID))
		}
	}
	slices.Sort(few.own)
	return few
}

// survives reports whether a policy's tests of the variables that are not
// searched for hold.
func survives(p *policy, of variable, up *lineages) bool {
	for _, tests := range [][]scopeTest{p.facts.scope, p.facts.leading} {
		for i := range tests {
			if t := &tests[i]; t.of != of && !up[t.of].holds(t) {
				return false
			}
		}
	}
	return true
}

// naming is a test of a policy that names entities, the one that names fewest.
func naming(p *policy, of variable) (best scopeTest, ok bool) {
	for _, tests := range [][]scopeTest{p.facts.scope, p.facts.leading} {
		for _, t := range tests {
			if t.of == of && t.uids != nil && (!ok || t.eq && !best.eq || t.eq == best.eq && len(t.uids) < len(best.uids)) {
				best, ok = t, true
			}
		}
	}
	return best, ok
}

// below adds an entity and all that is below it, as this request sees it: the
// entities it sends may have other parents than the stored ones, so whatever is
// sent counts as below everything; it is asked like any other candidate.
func (q *question) below(uid types.EntityUID, walked map[types.EntityUID]struct{}) {
	var todo []types.EntityUID
	add := func(uids ...types.EntityUID) {
		for _, uid := range uids {
			if _, ok := walked[uid]; !ok {
				walked[uid] = struct{}{}
				todo = append(todo, uid)
			}
		}
	}
	add(uid, q.entities.principal.UID, q.entities.resource.UID)
	for len(todo) > 0 {
		next := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for s := q.entities.store; s != nil; s = s.root {
			add(s.children[next]...)
		}
	}
}

// candidates are ids in their order: those of a tenant and those of the root,
// which have none in common.
type candidates struct{ own, root []string }

func (c *candidates) len() int { return len(c.own) + len(c.root) }

func (c *candidates) any() bool { return c.len() > 0 }

func (c *candidates) skip(after *string) {
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

func (c *candidates) next() (string, bool) {
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
