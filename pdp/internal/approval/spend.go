package approval

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"policy-service/pdp/internal/ledger"
)

// Live finds the approval that can be used now by a request with this digest. If there is an
// id, it is the approval with that id or none.
func (s *Store) Live(digest [32]byte, id string) (a Approval, live bool, err error) {
	now := s.later()
	err = s.ledger.View(func(tx *ledger.Tx) {
		a, live = read(tx, bound(tx, digest))
		live = live && (id == "" || id == a.ID) && a.usable(now, digest) && s.counts(tx, &a)
	})
	if err != nil || !live {
		return Approval{}, false, err
	}
	return a, true, nil
}

// later is the time by which what expires has expired for certain: a clock of another process may be ahead.
func (s *Store) later() time.Time {
	if s.options.Behind == nil {
		return s.now()
	}
	return s.now().Add(s.options.Behind())
}

// counts reports whether an open approval was held against the log, and all its steps are on record.
func (s *Store) counts(tx *ledger.Tx, a *Approval) bool {
	return s.ledger.Listed(tx, a.Standing()) && !s.ledger.Unrecorded(tx, a.ID)
}

// Reservation is a use of an approval that one decision has, and no other can have, or uses
// that several decisions of one batch have. The approval is locked until exactly one of Spent
// and InDoubt is called.
type Reservation = ledger.Reservation[Approval, Step]

// Reserve takes one use of an approval for a decision, durably, so that the decision can be
// recorded. Nil and no error: there is no use left.
//
// Before that the log is asked for every vote, and for the step that said that the votes are
// enough. If they are not enough any more, the approval is pending again, and not reserved.
//
// Whatever happens after Reserve, the use is not there for another decision. If it is neither
// spent nor in doubt, because the process ended, it is as in doubt: then Options.Recorded says
// whether the decision is on record.
func (s *Store) Reserve(ctx context.Context, id string, digest [32]byte, decision string) (*Reservation, error) {
	return s.reserve(ctx, id, decision, claim{
		may:  func(a *Approval, _ time.Time) bool { return a.usable(s.later(), digest) },
		take: func(m *move) { m.take(decision) },
	})
}

// take reserves a use for a decision.
func (m *move) take(decision string) {
	m.to.Reserved = append(m.to.Reserved, decision)
	m.to.spend(decision, m.now)
	m.reservedHere(decision)
}

// reservedHere notes that the log of this origin will say what becomes of a decision.
func (m *move) reservedHere(decision string) {
	if m.here(decision); m.store.options.Origin != "" {
		if m.to.Since == nil {
			m.to.Since = map[string]time.Time{}
		}
		m.to.Since[decision] = m.now
	}
}

// here notes that the log of this origin says what becomes of a decision, or has the record of a step.
func (m *move) here(record string) {
	if origin := m.store.options.Origin; origin != "" {
		if m.to.Origins == nil {
			m.to.Origins = map[string]string{}
		}
		m.to.Origins[record] = origin
	}
}

// claim is a use of an approval that a decision wants: whether it may have it, and the change that takes it. If it goes on from a use,
// after is the decision that made the use, for which the log must vouch.
type claim struct {
	may   func(a *Approval, now time.Time) bool
	take  func(*move)
	after string
}

func (s *Store) reserve(ctx context.Context, id, decision string, what claim) (*Reservation, error) {
	return ledger.Again(ctx, s.ledger, func() (*Reservation, error) { return s.reserveOnce(ctx, id, decision, what) })
}

func (s *Store) reserveOnce(ctx context.Context, id, decision string, what claim) (r *Reservation, err error) {
	a, release, err := s.ledger.Locked(ctx, id)
	if errors.Is(err, ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() {
		if r == nil {
			release()
		}
	}()
	if err := a.mayUse(decision); err != nil {
		return nil, err
	}
	m := s.move(a)
	if !what.may(&a, m.now) {
		return nil, nil
	}
	if votes, enough, err := s.proof.holding(ctx, &a); err != nil || !enough {
		if err == nil && a.at(m.now).Status == Approved {
			_, err = s.askAgain(ctx, a, votes)
		}
		return nil, err
	}
	if what.after != "" {
		if is, err := s.proof.used(ctx, &a, what.after); err != nil || !is {
			return nil, err
		}
	}
	what.take(m)
	if _, err := s.make(ctx, m); err != nil {
		return nil, err
	}
	return s.ledger.Reserved(m.to, decision, release), nil
}

// ReserveAgain takes one more use of an approval that is reserved, for another decision that
// goes on record with the first. It reports false if there is no use left. The votes were
// looked at for the first one, and only another process can have changed them since.
func (s *Store) ReserveAgain(r *Reservation, decision string) (bool, error) {
	ctx, seen := context.Background(), r.Item().Version
	err := r.Add(ctx, decision, func(a Approval) (Approval, error) {
		if err := a.mayUse(decision); err != nil {
			return a, err
		}
		if !a.usable(s.later(), a.Digest) {
			return a, errNoUse
		}
		if a.Version != seen { // another process changed it
			if _, enough, err := s.proof.holding(ctx, &a); err != nil || !enough {
				return a, cmp.Or(err, errNoUse)
			}
		}
		m := s.move(a)
		m.take(decision)
		_, err := s.make(ctx, m)
		return m.to, err
	})
	if errors.Is(err, errNoUse) {
		return false, nil
	}
	return err == nil, err
}

var errNoUse = errors.New("no use is left")

// mayUse refuses a decision that cannot be distinguished from one that used the approval.
func (a *Approval) mayUse(decision string) error {
	if decision == "" || a.has(decision) {
		return fmt.Errorf("%w: the decision %q has used the approval, or has no id", ErrInvalid, decision)
	}
	return nil
}

// Settle implements [ledger.Rules]: reserved uses are used, or there again.
func (r rules) Settle(ctx context.Context, a Approval, outcomes []ledger.Outcome) (Approval, ledger.Made[Step], error) {
	m := r.move(a)
	for _, o := range outcomes {
		before := len(m.steps)
		m.settle(o.Decision, o.Used)
		for n := range m.steps[before:] {
			m.steps[before+n].Lost = o.Lost
		}
	}
	made, err := r.make(ctx, m)
	return m.to, made, err
}

func (m *move) settle(decision string, used bool) {
	if m.settleRound(decision, used) {
		return
	}
	m.to.Reserved = slices.DeleteFunc(slices.Clone(m.to.Reserved), func(d string) bool { return d == decision })
	if !used {
		m.to.Spendings = slices.DeleteFunc(m.to.Spendings, func(s Spending) bool { return s.Decision == decision })
		m.step(Step{Name: StepReleased, Decision: decision})
		return
	}
	m.to.Used = append(m.to.Used, decision)
	m.step(Step{Name: StepUsed, Decision: decision})
	if m.to.Status == Approved && len(m.to.Used) >= m.to.Terms.Uses {
		m.to.end(UsedUp, m.now)
		m.step(Step{Name: StepUsedUp})
	}
}
