package bundle

import (
	"slices"

	"github.com/cedar-policy/cedar-go/types"

	"policy-service/evaluation"
)

// People are entities with all their identities: the identities that the entities have, those
// that these identities have, and every entity that has one of them. Two other names of one
// person are one person, too.
type People struct {
	Store *Store
	uids  []types.EntityUID
	ids   []types.String // an id stands for every entity with that id
	vague bool           // some identities are not known: those of an entity cannot be read, or there are too many
	steps int            // names and entities that the search for one person came by
}

// mostSteps bounds the search for the identities of a person. An approver waits for it, and for
// one search for each request in a list.
const mostSteps = 1_000

// step counts one step, and reports if the search may go on. If it may not, the person is vague,
// who approves nothing, and whose requests get no approval.
func (p *People) step() bool {
	p.steps++
	p.vague = p.vague || p.steps > mostSteps
	return p.steps <= mostSteps
}

// AddRef adds an entity by the name that a request has for it. It reports if requests can name
// entities of its type.
func (p *People) AddRef(c *Config, r evaluation.Ref) bool {
	typ, ok := c.EntityType(r.Type)
	p.Add(types.NewEntityUID(typ, types.String(r.ID)))
	return ok
}

// Add adds an entity with all its identities.
func (p *People) Add(uid types.EntityUID) {
	p.steps = 0
	p.add(uid)
}

// AddID adds every entity with an id, with all their identities.
func (p *People) AddID(id types.String) {
	p.steps = 0
	p.addID(id)
}

func (p *People) add(uid types.EntityUID) {
	if !p.step() || slices.Contains(p.uids, uid) {
		return
	}
	p.uids = append(p.uids, uid)
	if e, ok := p.Store.Get(uid); ok {
		p.addIdentities(e)
	}
	for s := p.Store; s != nil; s = s.Root {
		for _, e := range s.Naming[uid.ID] {
			if !p.step() {
				return
			}
			if uids, ids, _ := identitiesOf(e); slices.Contains(uids, uid) || slices.Contains(ids, uid.ID) {
				p.add(e.UID)
			}
		}
	}
}

func (p *People) addID(id types.String) {
	if !p.step() || slices.Contains(p.ids, id) {
		return
	}
	p.ids = append(p.ids, id)
	for s := p.Store; s != nil; s = s.Root {
		for _, e := range s.Identified[id] {
			if !p.step() {
				return
			}
			p.addIdentities(e)
		}
		for _, e := range s.Naming[id] {
			if !p.step() {
				return
			}
			p.add(e.UID)
		}
	}
}

func (p *People) addIdentities(e types.Entity) {
	uids, ids, ok := identitiesOf(e)
	p.vague = p.vague || !ok
	for _, uid := range uids {
		p.add(uid)
	}
	for _, id := range ids {
		p.addID(id)
	}
}

// identitiesOf reads the other identities of an entity. It fails if the attribute has anything
// but references and ids.
func identitiesOf(e types.Entity) (uids []types.EntityUID, ids []types.String, ok bool) {
	value, given := e.Attributes.Get(identities)
	if !given {
		return nil, nil, true
	}
	set, ok := value.(types.Set)
	for one := range set.All() {
		switch one := one.(type) {
		case types.EntityUID:
			uids = append(uids, one)
		case types.String:
			ids = append(ids, one)
		default:
			ok = false
		}
	}
	return uids, ids, ok
}

// identityIDs are the ids of the other identities of an entity.
func identityIDs(e types.Entity) []types.String {
	uids, ids, _ := identitiesOf(e)
	for _, uid := range uids {
		ids = append(ids, uid.ID)
	}
	return ids
}

// Overlaps reports if a person is one of the people. It reports true if the identities of
// either cannot be read.
func (p *People) Overlaps(s *Store, person types.EntityUID) bool {
	other := People{Store: s}
	other.Add(person)
	if p.vague || other.vague {
		return true
	}
	return p.has(&other) || other.has(p)
}

// has reports if an identity of other is one of these. It looks one way only.
func (p *People) has(other *People) bool {
	named := func(uid types.EntityUID) bool {
		return slices.Contains(p.uids, uid) || slices.Contains(p.ids, uid.ID)
	}
	return slices.ContainsFunc(other.uids, named) ||
		slices.ContainsFunc(other.ids, func(id types.String) bool { return slices.Contains(p.ids, id) })
}
