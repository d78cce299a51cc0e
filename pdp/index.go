package pdp

import (
	"iter"
	"slices"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"
)

// lineage is what scope tests see of a variable: its uid, and its ancestors.
type lineage struct {
	uid types.EntityUID
	up  []types.EntityUID // without uid itself, each once
	set map[types.EntityUID]struct{}
}

// manyAncestors is where looking an ancestor up beats walking the list.
const manyAncestors = 16

// lineageOf walks the parents of uid. It reaches what cedar-go's own walk for
// `in` reaches, so that a test holds here exactly when it holds there.
func lineageOf(uid types.EntityUID, entities types.EntityGetter) lineage {
	l := lineage{uid: uid}
	for next, i := uid, 0; ; i++ {
		if e, ok := entities.Get(next); ok {
			for parent := range e.Parents.All() {
				l.add(parent)
			}
		}
		if i == len(l.up) {
			return l
		}
		next = l.up[i]
	}
}

func (l *lineage) add(uid types.EntityUID) {
	if l.in(uid) {
		return
	}
	l.up = append(l.up, uid)
	if l.set != nil {
		l.set[uid] = struct{}{}
	} else if len(l.up) > manyAncestors {
		l.set = make(map[types.EntityUID]struct{}, 4*manyAncestors)
		for _, u := range l.up {
			l.set[u] = struct{}{}
		}
	}
}

// in reports whether the variable is uid or below it.
func (l *lineage) in(uid types.EntityUID) bool {
	if l.uid == uid {
		return true
	}
	if l.set != nil {
		_, ok := l.set[uid]
		return ok
	}
	return slices.Contains(l.up, uid)
}

// holds reports whether a test of this variable is true.
func (l *lineage) holds(t *scopeTest) bool {
	switch {
	case t.is != "" && t.is != l.uid.Type:
		return false
	case t.uids == nil:
		return true
	case t.eq:
		return l.uid == t.uids[0]
	}
	return slices.ContainsFunc(t.uids, l.in)
}

// lineages are those of the three variables of one request.
type lineages [variables]lineage

func (ls *lineages) hold(tests []scopeTest) bool {
	for i := range tests {
		if !ls[tests[i].of].holds(&tests[i]) {
			return false
		}
	}
	return true
}

// considers reports whether a policy's scope and leading tests hold: only then
// can it be satisfied or err, and only then is it part of a decision.
func (ls *lineages) considers(p *policy) bool {
	return ls.hold(p.facts.scope) && ls.hold(p.facts.leading)
}

// index finds the policies that a request could satisfy without looking at the
// others. It files each under one key per variable (the most selective of its
// tests, so that what comes out still has to be checked with considers) in
// maps nested action, principal, resource.
type index map[indexKey]map[indexKey]map[indexKey][]int32

// indexKey is an entity, a type (without an id), or anything at all.
type indexKey struct {
	uid  types.EntityUID
	form keyForm
}

type keyForm uint8

const (
	keyAny keyForm = iota
	keyType
	keyEntity
)

func newIndex(policies []*policy) index {
	x := index{}
	for n, p := range policies {
		keys := p.keys()
		for _, a := range keys[actionVar] {
			for _, pr := range keys[principalVar] {
				for _, r := range keys[resourceVar] {
					x.put(a, pr, r, int32(n))
				}
			}
		}
	}
	return x
}

func (x index) put(a, p, r indexKey, n int32) {
	if x[a] == nil {
		x[a] = map[indexKey]map[indexKey][]int32{}
	}
	if x[a][p] == nil {
		x[a][p] = map[indexKey][]int32{}
	}
	x[a][p][r] = append(x[a][p][r], n)
}

// keys chooses what to file a policy under.
func (p *policy) keys() [variables][]indexKey {
	var keys [variables][]indexKey
	for v := range keys {
		keys[v] = []indexKey{{}}
	}
	for _, tests := range [][]scopeTest{p.facts.scope, p.facts.leading} {
		for _, t := range tests {
			if k := keysOf(t); narrower(k, keys[t.of]) {
				keys[t.of] = k
			}
		}
	}
	for len(keys[principalVar])*len(keys[actionVar])*len(keys[resourceVar]) > maxFiled {
		longest := slices.MaxFunc([]variable{principalVar, actionVar, resourceVar}, func(a, b variable) int { return len(keys[a]) - len(keys[b]) })
		keys[longest] = []indexKey{{}}
	}
	return keys
}

// maxFiled bounds under how many combinations of keys one policy is filed. One
// that lists thousands of principals and of resources is filed by the shorter
// list: what comes out of the index is checked anyway.
const maxFiled = 10_000

func keysOf(t scopeTest) []indexKey {
	if t.uids == nil {
		return []indexKey{{uid: types.EntityUID{Type: t.is}, form: keyType}}
	}
	keys := make([]indexKey, len(t.uids))
	for i, uid := range t.uids {
		keys[i] = indexKey{uid: uid, form: keyEntity}
	}
	return keys
}

// narrower prefers entities to types to nothing, and fewer entities to more.
func narrower(a, b []indexKey) bool {
	rank := func(k []indexKey) keyForm {
		if len(k) == 0 {
			return keyEntity // in []: never true, and filed nowhere
		}
		return k[0].form
	}
	return rank(a) > rank(b) || rank(a) == rank(b) && len(a) < len(b)
}

// requestKeys are the keys under which policies that could match are filed.
func (l *lineage) requestKeys(keys []indexKey) []indexKey {
	keys = append(keys, indexKey{}, indexKey{types.EntityUID{Type: l.uid.Type}, keyType}, indexKey{l.uid, keyEntity})
	for _, uid := range l.up {
		keys = append(keys, indexKey{uid, keyEntity})
	}
	return keys
}

// find returns the numbers of the policies filed under the request's keys,
// ascending, each once.
func (x index) find(ls *lineages, scratch *scratch) []int32 {
	keys, found := &scratch.keys, scratch.found[:0]
	for v := range ls {
		keys[v] = ls[v].requestKeys(keys[v][:0])
	}
	for _, a := range keys[actionVar] {
		byPrincipal := x[a]
		filedUnder(byPrincipal, keys[principalVar], &ls[principalVar], func(byResource map[indexKey][]int32) {
			filedUnder(byResource, keys[resourceVar], &ls[resourceVar], func(n []int32) { found = append(found, n...) })
		})
	}
	slices.Sort(found)
	scratch.found = found
	return slices.Compact(found)
}

// filedUnder calls do with what is filed under the keys of a variable. A request may
// give thousands of ancestors, for each of two variables, so it goes through
// whichever is shorter, the keys or what is filed.
func filedUnder[T any](filed map[indexKey]T, keys []indexKey, l *lineage, do func(T)) {
	if len(filed) < len(keys) {
		for k, v := range filed {
			if l.matches(k) {
				do(v)
			}
		}
		return
	}
	for _, k := range keys {
		if v, ok := filed[k]; ok {
			do(v)
		}
	}
}

// matches reports whether a key is one of the variable's requestKeys.
func (l *lineage) matches(k indexKey) bool {
	switch k.form {
	case keyEntity:
		return l.in(k.uid)
	case keyType:
		return k.uid.Type == l.uid.Type
	}
	return true
}

// scratch is memory that one decision borrows.
type scratch struct {
	keys  [variables][]indexKey
	found []int32
	given policyList
}

// policyList is a list of policies in the order of their ids, as cedar-go
// iterates policies: with it, what cedar-go reports comes in that order too.
type policyList []*policy

// All implements cedar.PolicyIterator.
func (l policyList) All() iter.Seq2[cedar.PolicyID, *cedar.Policy] {
	return func(yield func(cedar.PolicyID, *cedar.Policy) bool) {
		for _, p := range l {
			if !yield(p.cedarID, p.cedar) {
				return
			}
		}
	}
}

// WithoutIndex is a bundle that decides the same without any of what finds policies and
// candidates faster: every policy is put to cedar-go, and a search examines every entity
// of its type. It is for tests that compare the two.
func (b *Bundle) WithoutIndex() *Bundle {
	plain := *b
	plain.views = map[string]*view{}
	for tenant, v := range b.views {
		v := *v
		v.index = nil
		plain.views[tenant] = &v
	}
	return &plain
}
