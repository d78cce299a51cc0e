package capability

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"time"

	"policy-service/evaluation/capability"
	"policy-service/evaluation/recent"
	"policy-service/pdp/internal/ledger"
)

// Usable finds a capability that can be used now. If it cannot, the error is a [*capability.Refusal], and the capability is
// returned with it, if there is one. One whose uses are not counted needs no more than that; of others a use is to be
// reserved. The log must vouch for the grant.
func (s *Store) Usable(ctx context.Context, id string) (Capability, error) {
	return s.inUse(ctx, id, read)
}

// UsableState is as Usable, of a capability without its words.
func (s *Store) UsableState(ctx context.Context, id string) (Capability, error) {
	return s.inUse(ctx, id, readState)
}

func (s *Store) inUse(ctx context.Context, id string, read reading) (Capability, error) {
	c, err := s.one(ctx, id, read)
	if err == nil {
		err = c.climb(s.later(), func(id string) (Capability, error) { return s.one(ctx, id, readState) })
	}
	return c, err
}

// one is inUse, and does not look at its ancestors.
func (s *Store) one(ctx context.Context, id string, read reading) (Capability, error) {
	c, found, err := s.get(ctx, id, read)
	switch {
	case err != nil:
		return Capability{Tenant: c.Tenant}, err
	case !found:
		return Capability{}, &capability.Refusal{Code: capability.BadSignature}
	}
	if err := c.refusal(s.later()); err != nil {
		return c, err
	}
	return c, s.mustVouch(ctx, &c)
}

// mustVouch refuses a capability for whose grant the log does not vouch: it is asked for anew. The log is asked once for each
// grant, because this is called for each call.
func (s *Store) mustVouch(ctx context.Context, c *Capability) error {
	grant := recent.Digest(sha256.Sum256([]byte(c.ID + "\x00" + c.Granted)))
	if _, known := s.attested.Get(grant); known {
		return nil
	}
	is, err := s.vouched(ctx, c)
	if err != nil {
		return err
	}
	if !is {
		return &capability.Refusal{Code: capability.Revoked}
	}
	s.attested.Put(grant, struct{}{}, attestedMost)
	return nil
}

// attestedMost is how many grants are remembered at least, in some 10 MB. Another replica may forget a capability, and nothing
// says so here: without a bound they would be here for good.
const attestedMost = 100_000

// Reservation is a use of a capability that one decision has, and no other can have; or the grant or the renewal of one. The
// capability is locked until exactly one of Spent and InDoubt is called.
type Reservation struct {
	*ledger.Reservation[Capability, Step]
	above []*ledger.Reservation[Capability, Step] // of the ancestors whose uses are counted
}

// Spent settles what is reserved: the decision is on record. After an error nobody may be answered; see
// [ledger.Reservation.Spent].
func (r *Reservation) Spent(ctx context.Context) (err error) {
	for _, a := range r.above {
		defer func() { err = errors.Join(err, a.Spent(ctx)) }() // all of them, even if one panics
	}
	if r.Item().Granting != "" { // a capability that is answered can be used at once, wherever it is
		return r.Settle(ctx)
	}
	return r.Reservation.Spent(ctx)
}

// Again takes nothing more: a decision about a capability goes on record by itself.
func (r *Reservation) Again(context.Context, string) (bool, error) { return false, nil }

// InDoubt leaves it reserved: it is not known whether the decision is on record.
func (r *Reservation) InDoubt() {
	for _, a := range r.above {
		defer a.InDoubt()
	}
	r.Reservation.InDoubt()
}

// Left is how many uses are left behind this one, the least of all that are counted.
func (r *Reservation) Left() int {
	c := r.Item()
	c.above = nil
	for _, a := range r.above {
		c.above = append(c.above, a.Item())
	}
	left, _ := c.UsesLeft()
	return left
}

// Reserve takes one use of a capability for a decision, and of its ancestors, durably, so that the decision can be recorded.
// Uses that are not counted are not taken. If one has no use that is left, none is taken, and the error is a
// [*capability.Refusal].
//
// Whatever happens after Reserve, the use is not there for another decision. If it is neither spent nor in doubt, because
// the process ended, it is as in doubt: then Options.Recorded says whether the decision is on record.
func (s *Store) Reserve(ctx context.Context, id, decision string) (*Reservation, error) {
	return ledger.Again(ctx, s.ledger, func() (*Reservation, error) {
		c, release, err := s.usable(ctx, id, decision)
		if err != nil {
			return nil, err
		}
		locks, err := s.climbLocked(ctx, &c, decision)
		if err != nil {
			release()
			return nil, err
		}
		m := s.move(c)
		m.reserve(decision, "")
		var free []Capability
		for _, a := range c.above {
			if a.MaxUses == 0 {
				free = append(free, a)
				continue
			}
			of := s.move(a)
			of.reserve(decision, c.ID)
			m.with = append(m.with, of)
		}
		m.also = func(change *change) { expect(change, free) }
		if _, err = s.make(ctx, m); err != nil {
			unlock(append([]func(){release}, locks...))
			return nil, err
		}
		r := &Reservation{Reservation: s.ledger.Reserved(m.to, decision, release)}
		for n, of := range m.with {
			r.above = append(r.above, s.ledger.Reserved(of.to, of.to.reservation(of.to.Reserved[len(of.to.Reserved)-1]), locks[n]))
		}
		return r, nil
	})
}

// usable locks a capability that can be used now, by a decision that has not used it.
func (s *Store) usable(ctx context.Context, id, decision string) (c Capability, release func(), err error) {
	c, release, err = s.ledger.Locked(ctx, id)
	if errors.Is(err, ErrNotFound) {
		return c, nil, &capability.Refusal{Code: capability.BadSignature}
	}
	if err != nil {
		return c, nil, err
	}
	if err = c.mayUse(decision); err == nil {
		err = c.refusal(s.later())
	}
	if err == nil {
		err = s.mustVouch(ctx, &c)
	}
	if err != nil {
		release()
	}
	return c, release, err
}

// later is the time by which what expires has expired for certain: a clock of another process may be ahead.
func (s *Store) later() time.Time {
	if s.options.Behind == nil {
		return s.now()
	}
	return s.now().Add(s.options.Behind())
}

// mayUse refuses a decision that cannot be distinguished from one that used the capability.
func (c *Capability) mayUse(decision string) error {
	if decision == "" || c.reserves(decision) || slices.Contains(c.Recent, decision) {
		return fmt.Errorf("%w: the decision %q has used the capability, or has no id", ErrInvalid, decision)
	}
	return nil
}

// Settle implements [ledger.Rules]: what was reserved is used, or there again.
func (r rules) Settle(ctx context.Context, c Capability, outcomes []ledger.Outcome) (_ Capability, made ledger.Made[Step], err error) {
	if c.Granting != "" && c.Claims == nil { // it was read without its words
		whole, err := r.ledger.Read(c.ID)
		if err != nil {
			return c, made, err
		}
		if whole.Revision != c.Revision {
			return c, made, ledger.ErrConflict
		}
		c = whole
	}
	if err := r.grantedBefore(ctx, &c, outcomes); err != nil {
		return c, made, err
	}
	m := r.move(c)
	for _, o := range outcomes {
		before, decision := len(m.steps), decisionOf(o.Decision)
		m.settle(decision, o.Used && (o.Lost == "" || m.to.Granting != decision))
		for n := range m.steps[before:] {
			m.steps[before+n].Lost = o.Lost
		}
	}
	made, err = r.make(ctx, m)
	return m.to, made, err
}

func (m *move) settle(decision string, used bool) {
	grants := m.to.Granting == decision
	m.to.release(decision)
	switch {
	case grants:
		m.settleGrant(decision, used)
		return
	case !used:
		m.step(Step{Name: StepReleased, Decision: decision})
		return
	}
	m.to.use(decision)
	m.step(Step{Name: StepUsed, Decision: decision})
	if m.to.open() && m.to.MaxUses > 0 && m.to.Used >= m.to.MaxUses {
		m.to.end(UsedUp, m.now)
		m.step(Step{Name: StepUsedUp})
	}
}

// grantedBefore refuses to grant a capability once more. A program that can write to etcd, and has no key, can delete it and put
// its first value again, and the reservation of the grant; the log here, which is to say whether that is on record, has the steps
// that came after it.
func (r rules) grantedBefore(ctx context.Context, c *Capability, outcomes []ledger.Outcome) error {
	looked := slices.ContainsFunc(outcomes, func(o ledger.Outcome) bool {
		return o.Looked && o.Used && c.Granting == decisionOf(o.Decision)
	})
	if !r.shared || !looked || c.State != Asked {
		return nil
	}
	steps, err := r.options.Steps(ctx, c.After, map[string]bool{c.ID: true})
	if err == nil && slices.ContainsFunc(steps[c.ID], func(s Step) bool { return s.Name != "" }) {
		err = fmt.Errorf("%w: %q was granted before, and its first value was put back", ErrDamaged, c.ID)
	}
	return err
}
