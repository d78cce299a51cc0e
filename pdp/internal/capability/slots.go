package capability

import (
	"crypto/rand"
	"errors"
	"fmt"
	"math/big"
	"net/url"
	"strconv"
	"strings"
	"time"

	"policy-service/evaluation/capability"
	"policy-service/pdp/internal/ledger"
)

// Status lists, whose names and places are random: what stands in one says nothing about who has what. No place of a list
// is given twice. These are their keys:
//
//	xf/T      → the list of a tenant that has room
//	xl/LIST   → the list
//	xs/LIST/N → the id of the capability whose place that is
const (
	prefixFilling = "xf/"
	prefixLists   = "xl/"
	prefixSlots   = "xs/"
)

// list is a status list.
type list struct {
	Tenant string `json:"tenant"`
	Taken  int    `json:"taken"`
	// Left are those of the taken that were given up since. Counted is set where they are counted: early builds did not.
	Left    int  `json:"left,omitzero"`
	Counted bool `json:"counted,omitzero"`

	Until time.Time `json:"until"` // when all capabilities have ended that have a place in it
	// Generation is that of the engine in which it was begun. In a list of another one there may be places of which the copy knows
	// nothing, as they were given after it was made.
	Generation uint64 `json:"generation,omitzero"`
}

// mostInList is how many places of a list are taken: a free one is found by a few tries.
const mostInList = capability.ListSize / 2

// ErrTaken: another capability got the place meanwhile. Take another.
var ErrTaken = errors.New("this place in the status list is taken")

func slotKey(name string, index int) string {
	return prefixSlots + name + "/" + strconv.Itoa(index)
}

// NewPlace finds a place in a status list of a tenant. It is taken by [Store.Grant].
func (s *Store) NewPlace(tenant string) (name string, index int, err error) {
	for {
		n, err := rand.Int(rand.Reader, big.NewInt(capability.ListSize))
		if err != nil {
			return "", 0, fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
		index, taken := int(n.Int64()), false
		err = s.ledger.View(func(tx *ledger.Tx) {
			var l list
			tx.Get(prefixFilling+url.PathEscape(tenant), &name)
			if tx.Get(prefixLists+name, &l); name == "" || l.Taken >= mostInList || l.Generation != s.options.Generation {
				name = strings.ToLower(rand.Text())
			}
			taken = tx.Get(slotKey(name, index), new(string)) > 0
		})
		if err != nil || !taken {
			return name, index, err
		}
	}
}

// place has a capability take its place, or keep it until a later end. It does nothing for one that has none.
func (s *Store) place(c *change, of *Capability) {
	name, index := placeOf(of.Token)
	if name == "" {
		return
	}
	l, id, slot := list{Tenant: of.Tenant, Generation: s.options.Generation, Counted: true}, "", slotKey(name, index)
	c.Get(prefixLists+name, &l)
	if c.Get(slot, &id); id != "" && id != of.ID || l.Tenant != of.Tenant {
		c.Fail(ErrTaken)
		return
	}
	if id == "" {
		l.Taken++
		c.Put(slot, of.ID)
		c.Put(prefixFilling+url.PathEscape(of.Tenant), name)
	}
	if of.Expires.After(l.Until) {
		l.Until = of.Expires
	}
	c.Put(prefixLists+name, l)
}

// leave gives up what is kept of the place of a capability that is forgotten. The last one that the list is for takes it
// along, unless the list has room.
func (s *Store) leave(c *change, token capability.Token, tenant string) {
	name, index := placeOf(token)
	if name == "" {
		return
	}
	var l list
	filling, id := "", ""
	c.Get(prefixFilling+url.PathEscape(tenant), &filling)
	c.Get(prefixLists+name, &l)
	if c.Get(slotKey(name, index), &id); id != "" {
		l.Left++
	}
	c.Delete(slotKey(name, index))
	if filling != name && s.now().After(l.Until) {
		c.Delete(prefixLists + name)
	} else {
		c.Put(prefixLists+name, l)
	}
}

// placeOf is the name of the list that a token has a place in, "" for none, and the place.
func placeOf(t capability.Token) (name string, index int) {
	return t.Status.URI[strings.LastIndexByte(t.Status.URI, '/')+1:], t.Status.Index
}

// ListTenant is the tenant of a status list. One is found as long as there can be a capability that has a place in it.
func (s *Store) ListTenant(name string) (tenant string, found bool, err error) {
	var l list
	err = s.ledger.View(func(tx *ledger.Tx) { tx.Get(prefixLists+name, &l) })
	return l.Tenant, err == nil && s.now().Before(l.Until), err
}

// states are what a status list says of a capability that can be used, or could be again. All others are invalid.
var states = map[State]capability.State{Active: capability.StateValid, Suspended: capability.StateSuspended}

// listed is what a status list says of a capability: no more than of any that it was made from. One whose last step is not on
// record is suspended: until it is, it counts for nothing.
func (s *Store) listed(tx *ledger.Tx, id string) capability.State {
	c, found := s.stored(tx, id, readState)
	line, worst := []Capability{c}, capability.StateValid
	for _, id := range c.Ancestors {
		a, there := s.stored(tx, id, readState)
		found = found && there && a.admits(&c)
		line = append(line, a)
	}
	for _, one := range line {
		switch state := states[one.State]; {
		case !found || state == capability.StateUnknown:
			return capability.StateInvalid
		case state == capability.StateSuspended || one.Unrecorded || one.yetToBegin(&c, s.now()):
			worst = capability.StateSuspended
		}
	}
	return worst
}

// FillList sets the states of all that have a place in a status list. It fails if some are missing: without its key, a program that
// can write to etcd could call valid what was revoked. In one that was begun before the engine was put back from a
// copy, no other place is valid: who it was given to is not known, and whether that was revoked.
func (s *Store) FillList(name string, in *capability.StatusList) error {
	return s.ledger.View(func(tx *ledger.Tx) {
		var l list
		if tx.Get(prefixLists+name, &l); l.Generation != s.options.Generation {
			for index := range capability.ListSize {
				in.Set(index, capability.StateInvalid)
			}
		}
		missing := l.Taken - l.Left
		defer func() {
			if missing > 0 && l.Counted {
				tx.Fail(fmt.Errorf("%w: %d places are missing in a status list", ErrDamaged, missing))
			}
		}()
		for key, read := range tx.Scan(prefixSlots+name+"/", "") {
			missing--
			id := ""
			index, err := strconv.Atoi(key[strings.LastIndexByte(key, '/')+1:])
			if !read(&id) || err != nil || index < 0 || index >= capability.ListSize {
				tx.Fail(fmt.Errorf("%w: %q is no place in a status list", ErrDamaged, key))
				return
			}
			in.Set(index, s.listed(tx, id))
		}
	})
}
