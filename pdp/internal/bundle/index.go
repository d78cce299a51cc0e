package bundle

import (
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go/types"
)

// Lineage is what a scope test sees of a variable: its uid and its ancestors.
type Lineage struct {
	Uid types.EntityUID
	Up  []types.EntityUID // without uid itself, each once
	Set map[types.EntityUID]struct{}
}

// ManyAncestors is the number of ancestors from which a lookup in a set is faster than a walk
// through the list.
const ManyAncestors = 16

// ParentsGetter knows the parents of entities. An entity that it does not know has none.
type ParentsGetter interface {
	Parents(uid types.EntityUID) types.EntityUIDSet
}

// LineageOf walks the parents of uid. It reaches the same entities as cedar-go's own walk for
// `in`, so that a test holds here exactly if it holds there.
func LineageOf(uid types.EntityUID, entities ParentsGetter) Lineage {
	l := Lineage{Uid: uid}
	for next, i := uid, 0; ; i++ {
		if parents := entities.Parents(next); parents.Len() > 0 { // to begin to go through a map is what costs
			for parent := range parents.All() {
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

// In reports if the variable is uid or below it.
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

// Holds reports if a policy's test of the scope is true of this entity: it is of a type, it is an entity or below
// one, or its id begins with a text. A test without entities asks for the type or the id alone.
func (l *Lineage) Holds(t *ScopeTest) bool {
	switch {
	case t.Is != "" && t.Is != l.Uid.Type:
		return false
	case t.Uids == nil:
		return strings.HasPrefix(string(l.Uid.ID), t.Prefix)
	case t.Eq:
		return l.Uid == t.Uids[0]
	}
	return slices.ContainsFunc(t.Uids, l.In)
}

// Lineages are the lineages of the three variables of one request.
type Lineages [Variables]Lineage

// Hold reports if all the tests hold.
func (ls *Lineages) Hold(tests []ScopeTest) bool {
	for i := range tests {
		if !ls[tests[i].Of].Holds(&tests[i]) {
			return false
		}
	}
	return true
}

// Considers reports if the scope and the leading tests of a policy hold. Only then can the
// policy be satisfied or err, and only then is it part of a decision.
func (ls *Lineages) Considers(p *Policy) bool {
	return ls.Hold(p.Facts.Scope) && ls.Hold(p.Facts.Leading)
}

// Index finds the policies that a request could satisfy, without looking at the other
// policies. Its maps are nested: action, principal, resource. It files each policy under one
// key for each variable, from the most selective test of the policy. So a policy that the
// index finds must still be checked with Considers.
type Index map[IndexKey]map[IndexKey]map[IndexKey][]int32

// IndexKey is an entity, a type (without an id), how an id begins (without a type), or anything at all.
type IndexKey struct {
	uid  types.EntityUID
	Form keyForm
}

type keyForm uint8

const (
	keyAny keyForm = iota
	KeyType
	keyPrefix // up to and including the first colon: owners of tools have names before it
	keyEntity
)

// NewIndex files policies under the keys that their scopes name.
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

// keys chooses the keys that a policy is filed under.
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
		longest := slices.MaxFunc([]Variable{PrincipalVar, ActionVar, ResourceVar}, func(a, b Variable) int {
			return len(keys[a]) - len(keys[b])
		})
		keys[longest] = []IndexKey{{}}
	}
	return keys
}

// maxFiled bounds the combinations of keys that one policy is filed under. A policy that lists
// thousands of principals and thousands of resources is filed by the shorter list only. That
// is safe, because the policies that the index finds are checked anyway.
const maxFiled = 10_000

// keysOf are the keys of one test.
func keysOf(t ScopeTest) []IndexKey {
	if t.Prefix != "" {
		if key, ok := prefixKey(t.Prefix); ok {
			return []IndexKey{key}
		}
		return []IndexKey{{}} // ids that begin so may have their colon anywhere
	}
	if t.Uids == nil {
		return []IndexKey{{uid: types.EntityUID{Type: t.Is}, Form: KeyType}}
	}
	keys := make([]IndexKey, len(t.Uids))
	for i, uid := range t.Uids {
		keys[i] = IndexKey{uid: uid, Form: keyEntity}
	}
	return keys
}

// prefixKey is the key of all ids that begin with a text, if there is a colon in it.
func prefixKey(text string) (IndexKey, bool) {
	colon := strings.IndexByte(text, ':')
	return IndexKey{uid: types.EntityUID{ID: types.String(text[:colon+1])}, Form: keyPrefix}, colon >= 0
}

// narrower prefers entities to prefixes, prefixes to types and types to no test, and fewer entities to more.
func narrower(a, b []IndexKey) bool {
	rank := func(k []IndexKey) keyForm {
		if len(k) == 0 {
			return keyEntity // a test in []: it is never true, and the policy is filed nowhere
		}
		return k[0].Form
	}
	return rank(a) > rank(b) || rank(a) == rank(b) && len(a) < len(b)
}

// requestKeys are the keys that a matching policy can be filed under.
func (l *Lineage) requestKeys(keys []IndexKey) []IndexKey {
	keys = append(keys, IndexKey{}, IndexKey{types.EntityUID{Type: l.Uid.Type}, KeyType}, IndexKey{l.Uid, keyEntity})
	if key, ok := prefixKey(string(l.Uid.ID)); ok {
		keys = append(keys, key)
	}
	for _, uid := range l.Up {
		keys = append(keys, IndexKey{uid, keyEntity})
	}
	return keys
}

// Find returns the numbers of the policies that are filed under the request's keys, ascending,
// each once.
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

// FindOpen returns what Find would for every resource of the type, whatever it is below, in ascending order.
func (x Index) FindOpen(ls *Lineages, scratch *Scratch) []int32 {
	keys, found := &scratch.keys, scratch.found[:0]
	for _, v := range []Variable{PrincipalVar, ActionVar} {
		keys[v] = ls[v].requestKeys(keys[v][:0])
	}
	for _, a := range keys[ActionVar] {
		byPrincipal := x[a]
		filedUnder(byPrincipal, keys[PrincipalVar], &ls[PrincipalVar], func(byResource map[IndexKey][]int32) {
			for k, n := range byResource {
				if k.Form != KeyType || k.uid.Type == ls[ResourceVar].Uid.Type {
					found = append(found, n...)
				}
			}
		})
	}
	slices.Sort(found)
	scratch.found = found
	return slices.Compact(found)
}

// filedUnder calls do for every value that is filed under the keys of a variable. A request
// may bring thousands of ancestors for each of two variables. So filedUnder walks the shorter
// one, the keys or the filed values.
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

// matches reports if a key is one of the variable's requestKeys.
func (l *Lineage) matches(k IndexKey) bool {
	switch k.Form {
	case keyEntity:
		return l.In(k.uid)
	case KeyType:
		return k.uid.Type == l.Uid.Type
	case keyPrefix:
		return strings.HasPrefix(string(l.Uid.ID), string(k.uid.ID))
	}
	return true
}

// Scratch is memory that one decision borrows.
type Scratch struct {
	keys  [Variables][]IndexKey
	found []int32
	Given PolicyList
}

// PolicyList is a list of policies in the order of their ids. cedar-go is given policies in this order, so its report
// comes in that order too.
type PolicyList []*Policy

// WithoutIndex is a bundle that decides the same without the means to find policies and
// candidates faster. cedar-go examines every policy, and a search examines every entity of its
// type. It is for tests that compare the two bundles.
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
