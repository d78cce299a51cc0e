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

// Spend takes one use of an approval for a decision, and has that recorded. Where there
// is no use to be had spent is false, and nothing was recorded.
//
// Before that the log is asked for every vote, and for the step that said that they are
// enough. If they are not any more, the approval is pending again, and not spent.
//
// The use is reserved before record is called, and durably: whatever happens then, it
// is not there for another. After an error of record it is in doubt until Recorded
// tells whether the decision is on record. Record's context does not end, for the
// reason that that of Options.Record does not.
func (s *Store) Spend(ctx context.Context, id string, digest [32]byte, decision string, record func(context.Context) error) (spent bool, err error) {
	a, release, err := s.locked(ctx, id)
	if errors.Is(err, ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer release()
	if decision == "" || slices.Contains(a.Used, decision) || slices.Contains(a.Reserved, decision) {
		return false, fmt.Errorf("%w: the decision %q has used the approval, or has no id", ErrInvalid, decision)
	}
	if !a.usable(s.now(), digest) || !s.remembered().isLive(id) {
		return false, nil
	}
	if votes, enough, err := s.holding(ctx, &a); err != nil || !enough {
		if err == nil {
			_, err = s.askAgain(ctx, a, votes)
		}
		return false, err
	}
	m := s.move(a)
	m.to.Reserved = append(m.to.Reserved, decision)
	if err := s.update(m.write); err != nil {
		return false, err
	}
	if err := record(context.WithoutCancel(ctx)); err != nil {
		return false, err
	}
	// The decision is on record, and that is what counts: the rest can be done later.
	if err := s.settle(ctx, m.to, func(d string) (bool, error) { return d == decision, nil }, decision); err != nil {
		s.options.OnError(err)
	}
	return true, nil
}

// settle says of reservations what became of them: they are used, or there again. The
// lock of the approval is held.
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
