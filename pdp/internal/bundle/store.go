package bundle

import (
	"slices"

	"github.com/cedar-policy/cedar-go/types"
)

// Store holds the entities of one view: a tenant's own entities above those of the root.
type Store struct {
	Root     *Store // nil for the root itself
	Entities map[types.EntityUID]types.Entity
	// Written holds the parents as the file gives them, for entities that have other parents
	// from attributes.
	Written map[types.EntityUID]types.EntityUIDSet
	// Searches find candidates by Ids, which are sorted, and by Children, the entities that
	// have an entity as a parent.
	Ids      map[types.EntityType][]string
	Children map[types.EntityUID][]types.EntityUID
	// Identified and Naming hold the entities that have other identities. Identified has them
	// by their own id, because an agent may be named by its id alone. Naming has them by the
	// ids of these other identities.
	Identified, Naming map[types.String][]types.Entity
	// below are the types of the entities that have parents, and ParentTypes those of the parents. Both are nil before
	// prepareSearch.
	below, ParentTypes map[types.EntityType]bool
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

// Parents implements [ParentsGetter].
func (s *Store) Parents(uid types.EntityUID) types.EntityUIDSet {
	for ; s != nil; s = s.Root {
		if s.below != nil && !s.below[uid.Type] {
			continue
		}
		if e, ok := s.Entities[uid]; ok {
			return e.Parents
		}
	}
	return types.EntityUIDSet{}
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

// AttributeMode says what a property that a request sends may do.
type AttributeMode uint8

// The modes of attributes.
const (
	Fill    AttributeMode = iota // a sent property counts if the store has none
	Stored                       // an entity in the store takes no sent property
	Request                      // a sent property replaces that in the store
)

// StoredParents reads the parents that an attribute in the store gives. There, unlike in a
// request, an attribute may also hold references of the parent type.
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

// above is a tenant's store above that of the root.
func (s *Store) above(root *Store) *Store {
	above := *s
	above.Root = root
	return &above
}

// prepareSearch makes the maps that searches find candidates in.
func (s *Store) prepareSearch() {
	s.Ids = map[types.EntityType][]string{}
	s.Children = map[types.EntityUID][]types.EntityUID{}
	s.Identified, s.Naming = map[types.String][]types.Entity{}, map[types.String][]types.Entity{}
	s.below, s.ParentTypes = map[types.EntityType]bool{}, map[types.EntityType]bool{}
	for uid, e := range s.Entities {
		if _, ok := e.Attributes.Get(identities); ok {
			s.Identified[uid.ID] = append(s.Identified[uid.ID], e)
			for _, id := range identityIDs(e) {
				s.Naming[id] = append(s.Naming[id], e)
			}
		}
		s.Ids[uid.Type] = append(s.Ids[uid.Type], string(uid.ID))
		if e.Parents.Len() > 0 {
			s.below[uid.Type] = true
		}
		for parent := range e.Parents.All() {
			s.ParentTypes[parent.Type] = true
			s.Children[parent] = append(s.Children[parent], uid)
		}
	}
	for _, ids := range s.Ids {
		slices.Sort(ids)
	}
}
