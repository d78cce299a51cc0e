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

// Candidates finds the candidates of a search. If the rest of the request is malformed, the
// error is an [*evaluation.Error], even if there are no candidates.
func (in *Inquiry) Candidates(ctx context.Context, kind evaluation.SearchKind) (*Candidates, error) {
	v, err := in.view()
	if err != nil {
		return nil, err
	}
	uids, ok := in.uids()
	if !ok {
		return &Candidates{}, nil
	}
	q := &Question{Entities: &Overlay{Store: v.Store}, Uids: uids}
	of := bundle.PrincipalVar
	switch kind {
	case evaluation.ActionSearch:
		if err := in.askEntities(v, q); err != nil {
			return nil, err
		}
		return &Candidates{own: v.Actions}, in.contextOfSome(ctx, v)
	case evaluation.ResourceSearch:
		of = bundle.ResourceVar
		made, err := in.entity(v, bundle.PrincipalVar, q.Uids[bundle.PrincipalVar])
		if err != nil {
			return nil, err
		}
		q.Entities.Principal = made.entity
	default:
		made, err := in.entity(v, bundle.ResourceVar, q.Uids[bundle.ResourceVar])
		if err != nil {
			return nil, err
		}
		q.Entities.Resource = made.entity
	}
	if _, err := in.contextOf(v, q.Uids[bundle.ActionVar]); err != nil {
		return nil, err
	}
	return candidatesFor(v, q, of), nil
}

// contextOfSome returns the first error of a context that is malformed for every action that
// the schema declares. An evaluation of any of the actions would return an error too.
func (in *Inquiry) contextOfSome(ctx context.Context, v *bundle.View) error {
	var first error
	b := in.Bundle
	for _, name := range v.Actions {
		if err := ctx.Err(); err != nil {
			return err
		}
		action := types.EntityUID{Type: b.Config.ActionType, ID: types.String(name)}
		if _, err := in.contextOf(v, action); err != nil {
			if first == nil {
				first = err
			}
		} else if b.Schema == nil || b.Schema.ContextOf(action) != nil {
			return nil
		}
	}
	return first
}

// candidatesFor returns the entities of the searched type that a permit could apply to. Those
// are the entities that the surviving permits name, and all entities below them. If a surviving
// permit names no entity, they are all entities of the type.
func candidatesFor(v *bundle.View, q *Question, of bundle.Variable) *Candidates {
	typ := q.Uids[of].Type
	all := &Candidates{own: v.Store.Ids[typ]}
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
	// An entity that == names is kept apart from those that were walked, because the walk has
	// not looked for the entities below it.
	named, walked := map[types.EntityUID]struct{}{}, map[types.EntityUID]struct{}{}
	for _, p := range v.Policies {
		if p.Forbids() || !survives(p, of, &up) {
			continue
		}
		t, ok := narrowestTest(p, of)
		if !ok {
			return all
		}
		if t.Prefix != "" {
			for _, id := range all.withPrefix(t.Prefix) {
				named[types.EntityUID{Type: typ, ID: types.String(id)}] = struct{}{}
			}
		}
		for _, uid := range t.Uids {
			if t.Eq {
				named[uid] = struct{}{}
				continue
			}
			q.below(uid, walked)
		}
		if 2*(len(named)+len(walked)) > all.Len() {
			return all // nearly everything: to sort it out would cost more than to ask
		}
	}
	maps.Copy(named, walked)
	few := &Candidates{}
	for uid := range named {
		if _, ok := v.Store.Get(uid); ok && uid.Type == typ {
			few.own = append(few.own, string(uid.ID))
		}
	}
	slices.Sort(few.own)
	return few
}

// survives reports whether a policy's tests of the other variables hold, which are those that
// the search does not look for.
func survives(p *bundle.Policy, of bundle.Variable, up *bundle.Lineages) bool {
	fails := func(t bundle.ScopeTest) bool { return t.Of != of && !up[t.Of].Holds(&t) }
	return !slices.ContainsFunc(p.Facts.Scope, fails) && !slices.ContainsFunc(p.Facts.Leading, fails)
}

// narrowestTest returns the test of a policy that names the fewest entities, if a test names any, or else one that says
// how their ids begin.
func narrowestTest(p *bundle.Policy, of bundle.Variable) (best bundle.ScopeTest, ok bool) {
	for _, tests := range [][]bundle.ScopeTest{p.Facts.Scope, p.Facts.Leading} {
		for _, t := range tests {
			if t.Of == of && (t.Uids != nil || t.Prefix != "") && (!ok || namesFewer(&t, &best)) {
				best, ok = t, true
			}
		}
	}
	return best, ok
}

// namesFewer reports whether a test is likely to let fewer entities pass than another.
func namesFewer(t, other *bundle.ScopeTest) bool {
	switch {
	case t.Eq != other.Eq:
		return t.Eq
	case (t.Uids == nil) != (other.Uids == nil):
		return t.Uids != nil
	case t.Uids != nil:
		return len(t.Uids) < len(other.Uids)
	}
	return len(t.Prefix) > len(other.Prefix)
}

// below adds an entity and all entities below it, as this request sees them. The subject and
// the resource of the request may have other parents than the stored ones. So both count as
// below every entity, and the policies are asked about them as about any other candidate.
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

// Candidates are the ids that a search has still to examine, in their order. A tenant and the
// root have no id in common.
type Candidates struct{ own, root []string }

// withPrefix lists the candidates whose ids begin with a text.
func (c *Candidates) withPrefix(prefix string) (ids []string) {
	for _, all := range [][]string{c.own, c.root} {
		first, _ := slices.BinarySearch(all, prefix)
		for _, id := range all[first:] {
			if !strings.HasPrefix(id, prefix) {
				break
			}
			ids = append(ids, id)
		}
	}
	return ids
}

// Len is the number of candidates that are left.
func (c *Candidates) Len() int { return len(c.own) + len(c.root) }

// Skip drops the candidates up to and including after. Nil drops none.
func (c *Candidates) Skip(after *string) {
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

// Next takes the first candidate. It reports false if none is left.
func (c *Candidates) Next() (string, bool) {
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
