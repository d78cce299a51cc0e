package pdp

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cedar-policy/cedar-go/types"

	"policy-service/evaluation"
)

// examinedPerPage bounds the work of one page: a page of fewer results than
// asked for may still have one after it.
const examinedPerPage = 10_000

// SearchCall is a search together with who asks, and where to go on.
type SearchCall struct {
	Search evaluation.Search
	evaluation.Asker
	Now time.Time
	// After is the last candidate that was examined before; nil at the beginning.
	After *string
	Limit int
	// GoOn is called before each candidate, as that of a [BatchCall] is before each item.
	GoOn func(context.Context) error
}

// SearchAnswer is one page of a search.
type SearchAnswer struct {
	ID    string
	Found []evaluation.Found
	// Last is the last candidate examined; nil where none was, ever.
	Last *string
	// More is set where candidates are left.
	More bool
	// Examined is the number of candidates decided.
	Examined int
}

// Search examines candidates in order of their ids, each decided as
// [PDP.Evaluate] would, so that every result is a permit. With an error comes only how
// many were examined.
func (p *PDP) Search(ctx context.Context, search SearchCall) (SearchAnswer, error) {
	call := Call{Request: search.Search.Request, Asker: search.Asker, Now: search.Now}
	p.stamp(&call)
	in := inquiry{bundle: p.Bundle(), call: call}
	if in.bundle == nil {
		return SearchAnswer{}, ErrNoBundle
	}
	answer := SearchAnswer{ID: p.options.NewID(), Last: search.After, Found: []evaluation.Found{}}
	_, span := step(ctx, "authorize")
	err := in.examine(ctx, search, &answer)
	ended(span, err)
	if err != nil {
		return SearchAnswer{Examined: answer.Examined}, err
	}
	call.Request.Tenant = in.call.Request.Tenant // named, if the search left it out
	r := Record{
		ID:     answer.ID,
		Time:   call.Now,
		Call:   call,
		Search: &answer,
		Kind:   search.Search.Kind,
		Bundle: in.bundle.Digest(),
	}
	if err := p.record(ctx, r); err != nil {
		return SearchAnswer{Examined: answer.Examined}, err
	}
	return answer, nil
}

// examine decides for one candidate after the other, up to the end of the page.
func (in *inquiry) examine(ctx context.Context, search SearchCall, answer *SearchAnswer) error {
	kind := search.Search.Kind
	candidates, err := in.candidates(ctx, kind)
	if err != nil {
		return err
	}
	candidates.skip(search.After)
	for filled := 0; answer.Examined < examinedPerPage && len(answer.Found) < search.Limit && filled <= maxFilled; {
		id, ok := candidates.next()
		if !ok {
			break
		}
		if err := goesOn(ctx, search.GoOn); err != nil {
			return err
		}
		d, err := in.candidate(ctx, kind, id)
		if err != nil {
			return err
		}
		if d.Allow {
			f := found(kind, &in.call, id)
			f.Obligations = d.Obligations
			filled += filledSize(d)
			answer.Found = append(answer.Found, f)
		}
		answer.Last = &id
		answer.Examined++
	}
	answer.More = candidates.any()
	return nil
}

// candidate decides for one candidate. What would be malformed as a request of
// its own is no permit.
func (in *inquiry) candidate(ctx context.Context, kind evaluation.SearchKind, id string) (d evaluation.Decision, err error) {
	switch r := &in.call.Request; kind {
	case evaluation.SubjectSearch:
		r.Subject.ID = id
	case evaluation.ResourceSearch:
		r.Resource.ID = id
	default:
		r.Action.Name = id
	}
	w, err := in.judge(ctx)
	if err == nil {
		d, err = w.answer(ctx, in)
	}
	var malformed *evaluation.Error
	if errors.As(err, &malformed) {
		return evaluation.Decision{}, nil
	}
	return d, err
}

// found is a result, its type as the request spelt it.
func found(kind evaluation.SearchKind, call *Call, id string) evaluation.Found {
	switch kind {
	case evaluation.SubjectSearch:
		return evaluation.Found{Type: call.Request.Subject.Type, ID: id}
	case evaluation.ResourceSearch:
		return evaluation.Found{Type: call.Request.Resource.Type, ID: id}
	}
	return evaluation.Found{Name: id}
}

// candidates finds the candidates of a search. What is wrong with the rest of the
// request is an [*evaluation.Error], also if there are none.
func (in *inquiry) candidates(ctx context.Context, kind evaluation.SearchKind) (*candidates, error) {
	b, r := in.bundle, &in.call.Request
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
	return v.candidatesFor(q, of), nil
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
func (v *view) candidatesFor(q *question, of variable) *candidates {
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
		t, ok := p.naming(of)
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
func (p *policy) naming(of variable) (best scopeTest, ok bool) {
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

func (c *candidates) len() int  { return len(c.own) + len(c.root) }
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

// prepareSearch makes what searches look candidates up in.
func (s *store) prepareSearch() {
	s.ids = map[types.EntityType][]string{}
	s.children = map[types.EntityUID][]types.EntityUID{}
	s.identified, s.naming = map[types.String][]types.Entity{}, map[types.String][]types.Entity{}
	for uid, e := range s.entities {
		if _, ok := e.Attributes.Get(identities); ok {
			s.identified[uid.ID] = append(s.identified[uid.ID], e)
			for _, id := range identityIDs(e) {
				s.naming[id] = append(s.naming[id], e)
			}
		}
		s.ids[uid.Type] = append(s.ids[uid.Type], string(uid.ID))
		for parent := range e.Parents.All() {
			s.children[parent] = append(s.children[parent], uid)
		}
	}
	for _, ids := range s.ids {
		slices.Sort(ids)
	}
}

// findActions lists the actions that schema, entities or policies name.
func (b *Bundle) findActions(v *view) {
	seen := map[string]struct{}{}
	for s := v.store; s != nil; s = s.root {
		for _, id := range s.ids[b.config.actionType] {
			seen[id] = struct{}{}
		}
	}
	for _, p := range v.policies {
		for _, uid := range p.facts.uids {
			if uid.Type == b.config.actionType {
				seen[string(uid.ID)] = struct{}{}
			}
		}
	}
	for id := range seen {
		v.actions = append(v.actions, id)
	}
	slices.Sort(v.actions)
}
