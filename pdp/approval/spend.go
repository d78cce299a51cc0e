package approval

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Live finds an approval that can be spent now on what a digest stands for. With an id
// it is that one or none.
func (s *Store) Live(digest [32]byte, id string) (a Approval, live bool) {
	now := s.now()
	err := s.view(func(tx values) error {
		one, found, err := bound(tx, digest)
		if found && err == nil && s.memory.isLive(one.ID) && one.usable(now, digest) && (id == "" || id == one.ID) && !s.memory.waits(one.ID) {
			a, live = one, true
		}
		return err
	})
	if err != nil {
		s.options.OnError(err)
		return Approval{}, false
	}
	return a, live
}

// Reservation is a use of an approval that one decision has, and no other can have. The
// approval is locked until exactly one of Spent and InDoubt is called.
type Reservation struct {
	store    *Store
	approval Approval // with the reservation
	decision string
	release  func()
}

// Reserve takes one use of an approval for a decision, durably, so that the decision can be
// recorded. Nil and no error: there is no use left.
//
// Before that the log is asked for every vote, and for the step that said that the votes are
// enough. If they are not enough any more, the approval is pending again, and not reserved.
//
// Whatever happens after Reserve, the use is not there for another decision. If it is neither
// spent nor in doubt, because the process ended, it is as in doubt: then Options.Recorded tells
// whether the decision is on record.
func (s *Store) Reserve(ctx context.Context, id string, digest [32]byte, decision string) (r *Reservation, err error) {
	a, release, err := s.locked(ctx, id)
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
	if decision == "" || slices.Contains(a.Used, decision) || slices.Contains(a.Reserved, decision) {
		return nil, fmt.Errorf("%w: the decision %q has used the approval, or has no id", ErrInvalid, decision)
	}
	if !a.usable(s.now(), digest) || !s.remembered().isLive(id) {
		return nil, nil
	}
	if votes, enough, err := s.holding(ctx, &a); err != nil || !enough {
		if err == nil {
			_, err = s.askAgain(ctx, a, votes)
		}
		return nil, err
	}
	m := s.move(a)
	m.to.Reserved = append(m.to.Reserved, decision)
	if err := s.update(m.write); err != nil {
		return nil, err
	}
	return &Reservation{store: s, approval: m.to, decision: decision, release: release}, nil
}

// Spent settles the use: the decision is on record, and that is what counts. What cannot be
// written now is written later.
func (r *Reservation) Spent(ctx context.Context) {
	defer r.release()
	onRecord := func(decision string) (bool, error) { return decision == r.decision, nil }
	if err := r.store.settle(ctx, r.approval, onRecord, r.decision); err != nil {
		r.store.options.OnError(err)
	}
}

// InDoubt leaves the use reserved: it is not known whether the decision is on record. [Store.Run]
// asks the log, and then the use is spent or there again.
func (r *Reservation) InDoubt() { r.release() }

// settle notes what became of reservations: they are used, or there again. The lock of the
// approval is held.
func (s *Store) settle(ctx context.Context, a Approval, recorded func(string) (bool, error), decisions ...string) error {
	m, now := s.move(a), s.now()
	for _, d := range decisions {
		used, err := recorded(d)
		if err != nil {
			return fmt.Errorf("whether decision %s, which uses approval %s, is on record: %w", d, a.ID, err)
		}
		m.settle(d, used, now)
	}
	_, err := s.commit(ctx, m)
	return err
}

func (m *move) settle(decision string, used bool, now time.Time) {
	rest := slices.DeleteFunc(slices.Clone(m.to.Reserved), func(d string) bool { return d == decision })
	m.to.Reserved = rest
	if !used {
		m.step(Step{Name: StepReleased, At: now, Decision: decision})
		return
	}
	m.to.Used = append(m.to.Used, decision)
	m.step(Step{Name: StepUsed, At: now, Decision: decision})
	if m.to.Status == Approved && len(m.to.Used) >= m.to.Terms.Uses {
		m.to.end(UsedUp, now)
		m.step(Step{Name: StepUsedUp, At: now})
	}
}
