package bundle

import (
	"iter"
	"slices"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"
)

// Lineage is what scope tests see of a variable: its uid, and its ancestors.
type Lineage struct {
	Uid types.EntityUID
	Up  []types.EntityUID // without uid itself, each once
	Set map[types.EntityUID]struct{}
}

// ManyAncestors is where looking an ancestor up beats walking the list.
const ManyAncestors = 16

// LineageOf walks the parents of uid. It reaches what cedar-go's own walk for
// `in` reaches, so that a test holds here exactly when it holds there.
func LineageOf(uid types.EntityUID, entities types.EntityGetter) Lineage {
	l := Lineage{Uid: uid}
	for next, i := uid, 0; ; i++ {
		if e, ok := entities.Get(next); ok {
			for parent := range e.Parents.All() {
				l.add(parent)
			}
		}
		if i == len(l.Up) {
			return l
		}
		next = l.Up[i]
	}
}

func (l *Lineage) add(uid types.EntityUID) {
	if l.In(uid) {
		return
	}
	l.Up = append(l.Up, uid)
	if l.Set != nil {
		l.Set[uid] = struct{}{}
	} else if len(l.Up) > ManyAncestors {
		l.Set = make(map[types.EntityUID]struct{}, 4*ManyAncestors)
		for _, u := range l.Up {
			l.Set[u] = struct{}{}
		}
	}
}

// In reports whether the variable is uid or below it.
func (l *Lineage) In(uid types.EntityUID) bool {
	if l.Uid == uid {
		return true
	}
	if l.Set != nil {
		_, ok := l.Set[uid]
		return ok
	}
	return slices.Contains(l.Up, uid)
}

// Holds reports whether a test of this variable is true.
func (l *Lineage) Holds(t *ScopeTest) bool {
	switch {
	case t.Is != "" && t.Is != l.Uid.Type:
		return false
	case t.Uids == nil:
		return true
	case t.Eq:
		return l.Uid == t.Uids[0]
	}
	return slices.ContainsFunc(t.Uids, l.In)
}

// Lineages are those of the three variables of one request.
type Lineages [Variables]Lineage

// Hold reports whether all of some tests hold.
func (ls *Lineages) Hold(tests []ScopeTest) bool {
	for i := range tests {
		if !ls[tests[i].Of].Holds(&tests[i]) {
			return false
		}
	}
	return true
}

// Considers reports whether a policy's scope and leading tests hold: only then
// can it be satisfied or err, and only then is it part of a decision.
func (ls *Lineages) Considers(p *Policy) bool {
	return ls.Hold(p.Facts.Scope) && ls.Hold(p.Facts.Leading)
}

// Index finds the policies that a request could satisfy without looking at the
// others. It files each under one key per variable (the most selective of its
// tests, so that what comes out still has to be checked with considers) in
// maps nested action, principal, resource.
type Index map[IndexKey]map[IndexKey]map[IndexKey][]int32

// IndexKey is an entity, a type (without an id), or anything at all.
type IndexKey struct {
	uid  types.EntityUID
	Form keyForm
}

type keyForm uint8

const (
	keyAny keyForm = iota
	KeyType
	keyEntity
)

// NewIndex files policies under what their scopes name.
func NewIndex(policies []*Policy) Index {
	x := Index{}
	for n, p := range policies {
		keys := p.keys()
		for _, a := range keys[ActionVar] {
			for _, pr := range keys[PrincipalVar] {
				for _, r := range keys[ResourceVar] {
					x.put(a, pr, r, int32(n))
				}
			}
		}
	}
	return x
}

func (x Index) put(a, p, r IndexKey, n int32) {
	if x[a] == nil {
		x[a] = map[IndexKey]map[IndexKey][]int32{}
	}
	if x[a][p] == nil {
		x[a][p] = map[IndexKey][]int32{}
	}
	x[a][p][r] = append(x[a][p][r], n)
}

// keys chooses what to file a policy under.
func (p *Policy) keys() [Variables][]IndexKey {
	var keys [Variables][]IndexKey
	for v := range keys {
		keys[v] = []IndexKey{{}}
	}
	for _, tests := range [][]ScopeTest{p.Facts.Scope, p.Facts.Leading} {
		for _, t := range tests {
			if k := keysOf(t); narrower(k, keys[t.Of]) {
				keys[t.Of] = k
			}
		}
	}
	for len(keys[PrincipalVar])*len(keys[ActionVar])*len(keys[ResourceVar]) > maxFiled {
		longest := slices.MaxFunc([]Variable{PrincipalVar, ActionVar, ResourceVar}, func(a, b Variable) int { return len(keys[a]) - len(keys[b]) })
		keys[longest] = []IndexKey{{}}
	}
	return keys
}

// maxFiled bounds under how many combinations of keys one policy is filed. One
// that lists thousands of principals and of resources is filed by the shorter
// list: what comes out of the index is checked anyway.
const maxFiled = 10_000

func keysOf(t ScopeTest) []IndexKey {
	if t.Uids == nil {
		return []IndexKey{{uid: types.EntityUID{Type: t.Is}, Form: KeyType}}
	}
	keys := make([]IndexKey, len(t.Uids))
	for i, uid := range t.Uids {
		keys[i] = IndexKey{uid: uid, Form: keyEntity}
	}
	return keys
}

// narrower prefers entities to types to nothing, and fewer entities to more.
func narrower(a, b []IndexKey) bool {
	rank := func(k []IndexKey) keyForm {
		if len(k) == 0 {
			return keyEntity // in []: never true, and filed nowhere
		}
		return k[0].Form
	}
	return rank(a) > rank(b) || rank(a) == rank(b) && len(a) < len(b)
}

// requestKeys are the keys under which policies that could match are filed.
func (l *Lineage) requestKeys(keys []IndexKey) []IndexKey {
	keys = append(keys, IndexKey{}, IndexKey{types.EntityUID{Type: l.Uid.Type}, KeyType}, IndexKey{l.Uid, keyEntity})
	for _, uid := range l.Up {
		keys = append(keys, IndexKey{uid, keyEntity})
	}
	return keys
}

// Find returns the numbers of the policies filed under the request's keys,
// ascending, each once.
func (x Index) Find(ls *Lineages, scratch *Scratch) []int32 {
	keys, found := &scratch.keys, scratch.found[:0]
	for v := range ls {
		keys[v] = ls[v].requestKeys(keys[v][:0])
	}
	for _, a := range keys[ActionVar] {
		byPrincipal := x[a]
		filedUnder(byPrincipal, keys[PrincipalVar], &ls[PrincipalVar], func(byResource map[IndexKey][]int32) {
			filedUnder(byResource, keys[ResourceVar], &ls[ResourceVar], func(n []int32) { found = append(found, n...) })
		})
	}
	slices.Sort(found)
	scratch.found = found
	return slices.Compact(found)
}

// filedUnder calls do with what is filed under the keys of a variable. A request may
// give thousands of ancestors, for each of two variables, so it goes through
// whichever is shorter, the keys or what is filed.
func filedUnder[T any](filed map[IndexKey]T, keys []IndexKey, l *Lineage, do func(T)) {
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
func (l *Lineage) matches(k IndexKey) bool {
	switch k.Form {
	case keyEntity:
		return l.In(k.uid)
	case KeyType:
		return k.uid.Type == l.Uid.Type
	}
	return true
}

// Scratch is memory that one decision borrows.
type Scratch struct {
	keys  [Variables][]IndexKey
	found []int32
	Given PolicyList
}

// PolicyList is a list of policies in the order of their ids, as cedar-go
// iterates policies: with it, what cedar-go reports comes in that order too.
type PolicyList []*Policy

// All implements cedar.PolicyIterator.
func (l PolicyList) All() iter.Seq2[cedar.PolicyID, *cedar.Policy] {
	return func(yield func(cedar.PolicyID, *cedar.Policy) bool) {
		for _, p := range l {
			if !yield(p.CedarID, p.Cedar) {
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
	plain.Views = map[string]*View{}
	for tenant, v := range b.Views {
		v := *v
		v.Index = nil
		plain.Views[tenant] = &v
	}
	return &plain
}
