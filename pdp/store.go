package pdp

import (
	"slices"

	"github.com/cedar-policy/cedar-go/types"
)

// store holds the entities of one view: a tenant's own above the root's.
type store struct {
	root     *store // nil for the root itself
	entities map[types.EntityUID]types.Entity
	// written holds the parents as the file gives them, for entities some of
	// whose parents come from attributes.
	written map[types.EntityUID]types.EntityUIDSet
	// what searches look candidates up in: ids by type, sorted, and what has an
	// entity as a parent
	ids      map[types.EntityType][]string
	children map[types.EntityUID][]types.EntityUID
	// and those that have other identities, by their own id, because an agent may be named
	// by that alone, and by the ids that they name
	identified, naming map[types.String][]types.Entity
}

// Get implements types.EntityGetter.
func (s *store) Get(uid types.EntityUID) (types.Entity, bool) {
	for ; s != nil; s = s.root {
		if e, ok := s.entities[uid]; ok {
			return e, true
		}
	}
	return types.Entity{}, false
}

func (s *store) writtenParents(e types.Entity) types.EntityUIDSet {
	for ; s != nil; s = s.root {
		if parents, ok := s.written[e.UID]; ok {
			return parents
		}
	}
	return e.Parents
}

// attributeMode says what a sent property may do.
type attributeMode uint8

const (
	fill    attributeMode = iota // counts where the store has none
	stored                       // an entity in the store takes nothing
	request                      // sent wins
)

// storedParents reads the same from the store, where an attribute may also hold
// references of the parent type.
func storedParents(v types.Value, parent types.EntityType) ([]types.EntityUID, bool) {
	switch v := v.(type) {
	case types.String:
		return []types.EntityUID{{Type: parent, ID: v}}, true
	case types.EntityUID:
		return []types.EntityUID{v}, v.Type == parent
	case types.Set:
		var uids []types.EntityUID
		for e := range v.All() {
			one, ok := storedParents(e, parent)
			if _, set := e.(types.Set); set || !ok {
				return nil, false
			}
			uids = append(uids, one...)
		}
		return uids, true
	}
	return nil, false
}

// on is a tenant's store above the root's.
func (s *store) on(root *store) *store {
	above := *s
	above.root = root
	return &above
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
