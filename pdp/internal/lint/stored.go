package lint

import (
	"slices"

	"github.com/cedar-policy/cedar-go/types"

	"policy-service/pdp/internal/bundle"
)

// storeFacts remembers facts about the entities of one view. There can be many entities, and
// the linter needs the facts for every policy.
type storeFacts struct {
	store *bundle.Store
	every map[typedName]bool // whether each entity of the type has the attribute
	above map[types.EntityType]map[types.EntityUID]struct{}
}

type typedName struct {
	typ  types.EntityType
	name string
}

// of yields the entities of a type, the root's included.
func (f *storeFacts) of(typ types.EntityType) func(func(types.Entity) bool) {
	return func(yield func(types.Entity) bool) {
		for s := f.store; s != nil; s = s.Root {
			for uid, e := range s.Entities {
				if uid.Type == typ && !yield(e) {
					return
				}
			}
		}
	}
}

// everyHas reports whether each entity of the type has the attribute.
func (f *storeFacts) everyHas(typ types.EntityType, name string) bool {
	key := typedName{typ, name}
	every, asked := f.every[key]
	if !asked {
		every = true
		for e := range f.of(typ) {
			if _, has := e.Attributes.Get(types.String(name)); !has {
				every = false
				break
			}
		}
		f.every[key] = every
	}
	return every
}

// isAbove reports whether an entity of the type is below the group.
func (f *storeFacts) isAbove(group types.EntityUID, typ types.EntityType) bool {
	above, asked := f.above[typ]
	if !asked {
		above = map[types.EntityUID]struct{}{}
		for e := range f.of(typ) {
			up := bundle.LineageOf(e.UID, f.store)
			for _, uid := range up.Up {
				above[uid] = struct{}{}
			}
		}
		f.above[typ] = above
	}
	_, ok := above[group]
	return ok
}

// storesOf returns the stores that the policy decides for. A root policy decides for all stores.
func (l *linter) storesOf(p *bundle.Policy) []*storeFacts {
	var facts []*storeFacts
	for _, v := range l.b.Views {
		if v.ByID[p.Id] != p {
			continue
		}
		if l.stores[v] == nil {
			l.stores[v] = &storeFacts{
				store: v.Store,
				every: map[typedName]bool{},
				above: map[types.EntityType]map[types.EntityUID]struct{}{},
			}
		}
		facts = append(facts, l.stores[v])
	}
	return facts
}

// everyHas reports whether every stored entity of the type has the attribute, in all stores
// that the policy decides for.
func (l *linter) everyHas(p *bundle.Policy, typ types.EntityType, name string) bool {
	return !slices.ContainsFunc(l.storesOf(p), func(f *storeFacts) bool { return !f.everyHas(typ, name) })
}

// isAbove reports whether an entity of the type is below the group, in any of the stores that
// the policy decides for.
func (l *linter) isAbove(p *bundle.Policy, group types.EntityUID, typ types.EntityType) bool {
	return slices.ContainsFunc(l.storesOf(p), func(f *storeFacts) bool { return f.isAbove(group, typ) })
}
