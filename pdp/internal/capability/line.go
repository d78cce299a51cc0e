package capability

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"policy-service/evaluation/capability"
	"policy-service/pdp/internal/ledger"
)

// A capability that was handed on has a line of ancestors. It can be used while all of them can, so what stops one of them
// stops all that was made from it, and nothing has to be found and changed. A use of it is a use of each ancestor whose uses
// are counted: all are reserved in one transaction, and each is settled by itself, as the log says of the one decision.

// aboveMark stands, before a depth, behind a decision in the name of its reservation of an ancestor: in the ledger no two
// reservations have one name.
const aboveMark = "^"

// reservation is the name of a reservation in the ledger.
func (c *Capability) reservation(r Reserved) string {
	if r.By == "" {
		return r.Decision
	}
	return r.Decision + aboveMark + strconv.Itoa(len(c.Ancestors))
}

// decisionOf is the decision that has the reservation of a name.
func decisionOf(reservation string) string {
	decision, _, _ := strings.Cut(reservation, aboveMark)
	return decision
}

// UsesLeft is how many uses are left of a capability that can be used, and whether they are counted, its own or those of
// an ancestor.
func (c *Capability) UsesLeft() (left int, counted bool) {
	for _, one := range append([]Capability{*c}, c.above...) {
		if one.MaxUses > 0 && (!counted || one.Left() < left) {
			left, counted = one.Left(), true
		}
	}
	return left, counted
}

// admits reports whether an ancestor, as it was renewed last, has in it what was made from it: how deep that is, and that no
// gateway takes it which would not take the ancestor, or count.
func (c *Capability) admits(of *Capability) bool {
	return len(of.Ancestors) <= c.MaxDepth && (!of.Offline || c.Offline)
}

// yetToBegin reports whether an ancestor was renewed for later, so that what was made from it before has to wait, too.
func (c *Capability) yetToBegin(of *Capability, now time.Time) bool {
	return now.Before(c.Begins) && of.Begins.Before(c.Begins)
}

// climb reads the ancestors of a capability. It is refused if one of them cannot be used, was forgotten, or does not
// admit it any more or yet.
func (c *Capability) climb(now time.Time, read func(id string) (Capability, error)) error {
	c.above = nil
	for _, id := range c.Ancestors {
		a, err := read(id)
		refusal := (*capability.Refusal)(nil)
		if errors.As(err, &refusal) && refusal.Code == capability.BadSignature || err == nil && !a.admits(c) {
			err = &capability.Refusal{Code: capability.Revoked}
		}
		if err == nil && a.yetToBegin(c, now) {
			err = &capability.Refusal{Code: capability.NotYetValid}
		}
		if err != nil {
			return err
		}
		c.above = append(c.above, a)
	}
	return nil
}

// climbLocked is climb, and locks the ancestors whose uses are counted.
func (s *Store) climbLocked(ctx context.Context, c *Capability, decision string) (locks []func(), err error) {
	err = c.climb(s.now(), func(id string) (Capability, error) {
		a, err := s.one(ctx, id, readState)
		if err != nil || a.MaxUses == 0 {
			return a, err
		}
		a, release, err := s.usable(ctx, id, decision)
		if err == nil {
			locks = append(locks, release)
		}
		return a, err
	})
	if err != nil {
		unlock(locks)
	}
	return locks, err
}

func unlock(locks []func()) {
	for _, release := range slices.Backward(locks) {
		release()
	}
}

// expect has a change count only if ancestors are what they were when they were read.
func expect(c *change, all []Capability) {
	for _, a := range all {
		if is, _ := readState(c, a.ID); is.Revision != a.Revision {
			c.Fail(ledger.ErrConflict)
		}
	}
}

// handOn reads from what a new capability is made, and locks that as climbLocked does. It fails if it is not narrower.
func (s *Store) handOn(ctx context.Context, c *Capability, decision string) (locks []func(), err error) {
	if c.Token.Parent == "" {
		return nil, nil
	}
	parent, err := s.Usable(ctx, c.Token.Parent)
	switch {
	case err != nil:
		return nil, err
	case parent.Tenant != c.Tenant:
		return nil, ErrNotFound
	}
	if err = parent.Token.Narrower(c.Token); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	c.Ancestors, c.Person = append([]string{parent.ID}, parent.Ancestors...), parent.Person
	if locks, err = s.climbLocked(ctx, c, decision); err != nil {
		return nil, err
	}
	if c.above[0].Digest != parent.Digest { // it was renewed meanwhile
		unlock(locks)
		return nil, ledger.ErrConflict
	}
	return locks, nil
}
