package bundle

import (
	"slices"

	"github.com/cedar-policy/cedar-go/types"
)

// Store holds the entities of one view: a tenant's own above the root's.
type Store struct {
	Root     *Store // nil for the root itself
	Entities map[types.EntityUID]types.Entity
	// Written holds the parents as the file gives them, for entities some of
	// whose parents come from attributes.
	Written map[types.EntityUID]types.EntityUIDSet
	// what searches look candidates up in: ids by type, sorted, and what has an
	// entity as a parent
	Ids      map[types.EntityType][]string
	Children map[types.EntityUID][]types.EntityUID
	// and those that have other identities, by their own id, because an agent may be named
	// by that alone, and by the ids that they name
	Identified, Naming map[types.String][]types.Entity
}

// Get implements types.EntityGetter.
func (s *Store) Get(uid types.EntityUID) (types.Entity, bool) {
	for ; s != nil; s = s.Root {
		if e, ok := s.Entities[uid]; ok {
			return e, true
		}
	}
	return types.Entity{}, false
}

// WrittenParents are an entity's parents as its file gives them.
func (s *Store) WrittenParents(e types.Entity) types.EntityUIDSet {
	for ; s != nil; s = s.Root {
		if parents, ok := s.Written[e.UID]; ok {
			return parents
		}
	}
	return e.Parents
}

// AttributeMode says what a sent property may do.
type AttributeMode uint8

const (
	Fill    AttributeMode = iota // counts where the store has none
	Stored                       // an entity in the store takes nothing
	Request                      // sent wins
)

// StoredParents reads the same from the store, where an attribute may also hold
// references of the parent type.
func StoredParents(v types.Value, parent types.EntityType) ([]types.EntityUID, bool) {
	switch v := v.(type) {
	case types.String:
		return []types.EntityUID{{Type: parent, ID: v}}, true
	case types.EntityUID:
		return []types.EntityUID{v}, v.Type == parent
	case types.Set:
		var uids []types.EntityUID
		for e := range v.All() {
			one, ok := StoredParents(e, parent)
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
func (s *Store) above(root *Store) *Store {
	above := *s
	above.Root = root
	return &above
}

// prepareSearch makes what searches look candidates up in.
func (s *Store) prepareSearch() {
	s.Ids = map[types.EntityType][]string{}
	s.Children = map[types.EntityUID][]types.EntityUID{}
	s.Identified, s.Naming = map[types.String][]types.Entity{}, map[types.String][]types.Entity{}
	for uid, e := range s.Entities {
		if _, ok := e.Attributes.Get(identities); ok {
			s.Identified[uid.ID] = append(s.Identified[uid.ID], e)
			for _, id := range identityIDs(e) {
				s.Naming[id] = append(s.Naming[id], e)
			}
		}
		s.Ids[uid.Type] = append(s.Ids[uid.Type], string(uid.ID))
		for parent := range e.Parents.All() {
			s.Children[parent] = append(s.Children[parent], uid)
		}
	}
	for _, ids := range s.Ids {
		slices.Sort(ids)
	}
}
