package capability

import (
	"context"
	"fmt"
	"strings"

	"policy-service/evaluation"
	"policy-service/pdp/internal/ledger"
)

const (
	// MostRenewals is how often a capability can be renewed.
	MostRenewals = 8

	mostGrant = 64 << 10 // bytes of the questions
)

// words are what a capability is to have, and the capability that it makes.
func (n *New) words() (c Capability, err error) {
	claims, err := n.Token.Claims()
	if err == nil {
		c = Capability{Tenant: n.Tenant, Caller: n.Caller, Person: n.Person, Bundle: n.Bundle}
		err = c.setWords(Words{claims, n.Grant, n.Approval, n.Ask})
	}
	switch {
	case err != nil:
		err = fmt.Errorf("%w: the token: %w", ErrInvalid, err)
	case !strings.HasPrefix(c.ID, "cap_") || strings.Contains(c.ID, "/"):
		err = fmt.Errorf("%w: the token has the id %q: take one of NewID", ErrInvalid, c.ID)
	case len(n.Grant) > mostGrant || n.Grant != nil && !n.Grant.IsValid():
		err = fmt.Errorf("%w: the questions of the grant are no JSON, or have more than %d bytes", ErrInvalid, mostGrant)
	}
	return c, err
}

// Admit counts a request for a capability, whatever it will be answered, by the owner that [OwnerOf] returns. An owner that asks
// too often gets a [LimitError].
func (s *Store) Admit(tenant string, of evaluation.Ref) error {
	return s.rates.take(owner{tenant, of}, s.now())
}

// Grant makes a capability that a decision is to grant. It cannot be used before the caller has recorded the decision and
// says so by Spent. One whose token has a parent is narrower than that, which has to be usable. If the caller does not know
// whether the decision is on record, or the process ends, the log says it later: then the capability is active, or was never
// granted.
func (s *Store) Grant(ctx context.Context, n New, decision string) (*Reservation, error) {
	c, err := n.words()
	if err == nil && (decision == "" || !s.now().Before(c.Expires)) {
		err = fmt.Errorf("%w: the capability has expired, or no decision grants it", ErrInvalid)
	}
	if err == nil {
		err = s.ledger.Ready(ctx)
	}
	if room := s.options.Room; err == nil && room != nil {
		if err = room(); err != nil {
			err = fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
	}
	if err != nil {
		return nil, err
	}
	return ledger.Again(ctx, s.ledger, func() (*Reservation, error) { return s.grant(ctx, c, decision) })
}

func (s *Store) grant(ctx context.Context, c Capability, decision string) (*Reservation, error) {
	release, err := s.ledger.Lock(ctx, c.ID)
	if err != nil {
		return nil, err
	}
	locks, err := s.handOn(ctx, &c, decision)
	if err != nil {
		release()
		return nil, err
	}
	defer unlock(locks)
	m := &move{store: s, now: s.now(), to: c.following()}
	m.to.State, m.to.Granting = Asked, decision
	m.reserve(decision, "")
	m.also = func(change *change) {
		expect(change, c.above)
		s.ask(change, &c)
		s.place(change, &c)
	}
	if _, err = s.make(ctx, m); err != nil {
		release()
		return nil, err
	}
	return &Reservation{Reservation: s.ledger.Reserved(m.to, decision, release)}, nil
}

// ask has what was asked find a capability. One that was granted by the same approval must have ended.
func (s *Store) ask(c *change, of *Capability) {
	if of.Approval == "" {
		return
	}
	id, key := "", askKey(of.Tenant, of.Approval, of.Ask)
	if c.Get(key, &id); id != "" && id != of.ID {
		if other, _ := readState(c, id); other.open() {
			c.Fail(ErrGranted)
		}
	}
	c.Put(key, of.ID)
}

// Granted finds the capability that an approval has granted for what was asked, or is to: a caller whose answer was lost
// asks again.
func (s *Store) Granted(ctx context.Context, tenant, approval, ask string) (c Capability, found bool, err error) {
	id := ""
	err = s.ledger.View(func(tx *ledger.Tx) { tx.Get(askKey(tenant, approval, ask), &id) })
	if id == "" || err != nil {
		return Capability{}, false, err
	}
	return s.Get(ctx, id)
}

// Renew has a decision renew an active capability, as Grant has one grant it. Until the decision is on record the
// capability is what it was. Its id, its holder, key and server, and the number of its uses stay; it may have no more uses
// than before.
func (s *Store) Renew(ctx context.Context, id string, n New, decision string) (*Reservation, error) {
	to, err := n.words()
	if err == nil {
		err = s.ledger.Ready(ctx)
	}
	if err != nil {
		return nil, err
	}
	return ledger.Again(ctx, s.ledger, func() (*Reservation, error) { return s.renew(ctx, id, to, decision) })
}

func (s *Store) renew(ctx context.Context, id string, to Capability, decision string) (r *Reservation, err error) {
	c, release, err := s.usable(ctx, id, decision)
	if err != nil {
		return nil, err
	}
	defer func() {
		if r == nil {
			release()
		}
	}()
	same := to.ID == c.ID && to.Tenant == c.Tenant && to.Holder == c.Holder && to.JKT == c.JKT && to.Audience == c.Audience &&
		to.Token.Status == c.Token.Status
	switch {
	case !same || !c.MayHaveUses(to.MaxUses) || !s.now().Before(to.Expires):
		return nil, fmt.Errorf("%w: it would be another capability, have more uses or none, or be over", ErrInvalid)
	case c.Renewals >= MostRenewals:
		return nil, ErrRenewals
	case c.Granting != "":
		return nil, fmt.Errorf("%w: whether it was renewed, the log will say", ErrUnavailable)
	}
	m := s.move(c)
	m.to.Granting = decision
	m.reserve(decision, "")
	m.to.next = &renewal{to.Words, to.Bundle}
	m.also = func(change *change) {
		if to.Approval != c.Approval || to.Ask != c.Ask {
			s.ask(change, &to)
		}
		s.place(change, &to)
		change.Put(prefixRenewal+id, m.to.next)
	}
	if _, err = s.make(ctx, m); err != nil {
		return nil, err
	}
	return &Reservation{Reservation: s.ledger.Reserved(m.to, decision, release)}, nil
}

// settleGrant settles the decision that was to grant or to renew a capability. If the capability ended before, it stays so.
func (m *move) settleGrant(decision string, used bool) {
	c, next := &m.to, m.to.next
	c.next = nil
	switch {
	case !used && c.State == Asked:
		c.end(Released, m.now)
		m.then(func(change *change) { m.store.unask(change, m.from, c.Approval, c.Ask) })
	case used && next == nil && c.State == Asked:
		c.State = Active
	case used && next != nil && c.open():
		was := c.Words
		if err := c.setWords(next.Words); err != nil {
			m.then(func(change *change) { change.Fail(fmt.Errorf("%w: the renewal of %q: %w", ErrDamaged, c.ID, err)) })
		}
		c.Bundle = next.Bundle
		c.Renewals++
		m.then(func(change *change) {
			if was.Approval != c.Approval || was.Ask != c.Ask {
				m.store.unask(change, m.from, was.Approval, was.Ask)
			}
			change.Put(prefixWords+c.ID, c.Words)
		})
	case next != nil && (next.Approval != c.Approval || next.Ask != c.Ask): // not renewed
		m.then(func(change *change) { m.store.unask(change, m.from, next.Approval, next.Ask) })
	}
	if next != nil {
		m.then(func(change *change) { change.Delete(prefixRenewal + c.ID) })
	}
	if used {
		c.Decision, c.GrantedIn = decision, m.store.options.Origin
	}
	switch {
	case !used:
		m.step(Step{Name: StepReleased, Decision: decision})
	case next != nil:
		c.Granted = m.step(Step{Name: StepRenewed, Decision: decision})
	default:
		c.Granted = m.step(Step{Name: StepGranted, Decision: decision})
	}
}

// then adds a part to the beginning of the change.
func (m *move) then(do func(*change)) {
	first := m.also
	m.also = func(c *change) {
		if first != nil {
			first(c)
		}
		do(c)
	}
}
