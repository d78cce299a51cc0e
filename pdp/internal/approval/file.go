package approval

import (
	"context"
	"errors"
	"fmt"
	"time"

	"policy-service/pdp/internal/ledger"
)

// File asks for an approval, once. If an approval that is bound to the same digest waits, or
// was approved, the result is that one.
func (s *Store) File(ctx context.Context, q ApprovalRequest) (Approval, error) {
	if err := errors.Join(s.fits(&q), s.ledger.Ready(ctx)); err != nil {
		return Approval{}, err
	}
	paid := false // the rates are taken once, however often the rest is done again
	return ledger.Again(ctx, s.ledger, func() (Approval, error) { return s.file(ctx, q, &paid) })
}

func (s *Store) file(ctx context.Context, q ApprovalRequest, paid *bool) (Approval, error) {
	release, err := s.ledger.Lock(ctx, "digest "+string(q.Digest[:])) // no id has a space
	if err != nil {
		return Approval{}, err
	}
	defer release()
	a, joined, stale, err := s.join(ctx, q.Digest)
	if joined || err != nil {
		return a, err
	}
	if room := s.options.Room; room != nil {
		if err := room(); err != nil {
			return Approval{}, fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
	}
	now := s.now()
	m := &move{store: s, now: now, to: Approval{
		ApprovalRequest: q,
		ID:              s.options.NewID(),
		Version:         1,
		Status:          Pending,
		FiledAt:         now,
		ExpiresAt:       now.Add(q.Terms.Timeout),
	}}
	m.step(Step{Name: StepFiled, Caller: q.Caller})
	mine, err := s.ledger.Lock(ctx, m.to.ID)
	if err != nil {
		return Approval{}, err
	}
	defer mine()
	m.first = func() (err error) {
		if !*paid {
			err = s.pay(&q, now)
			*paid = err == nil
		}
		return err
	}
	m.also = func(c *change) {
		if bound(c, q.Digest) != stale {
			c.Fail(ledger.ErrConflict)
		}
		c.Fail(s.limiter.full(countsOf(c, &q)))
	}
	return s.commit(ctx, m)
}

// pay takes what an approval request takes from the rates, unless too many wait.
func (s *Store) pay(q *ApprovalRequest, now time.Time) error {
	err := s.ledger.View(func(tx *ledger.Tx) { tx.Fail(s.limiter.full(countsOf(tx, q))) })
	if err == nil {
		err = s.limiter.take(q, now)
	}
	return err
}

// fits refuses a request that could not be shown to people, and terms that no person or any
// person could meet.
func (s *Store) fits(q *ApprovalRequest) error {
	size := len(q.Shown) + len(q.Said)
	if size+len(q.Drawn) > s.options.Limits.MaxShown {
		q.Drawn = nil // Shown says less, and no other
	}
	if size > s.options.Limits.MaxShown {
		return fmt.Errorf("%w: %d bytes, and %d are the most", ErrTooLarge, size, s.options.Limits.MaxShown)
	}
	if t := q.Terms; t.Quorum < 1 || t.Uses < 1 || t.Timeout <= 0 || t.ValidFor <= 0 {
		return fmt.Errorf("%w: terms of an approval without quorum, uses, timeout or validity", ErrInvalid)
	}
	return nil
}

// join finds the open approval that is bound to a digest. It ends one whose time is up. If one is bound that is not open,
// it is stale.
func (s *Store) join(ctx context.Context, digest [32]byte) (a Approval, joined bool, stale string, err error) {
	var id string
	err = s.ledger.View(func(tx *ledger.Tx) { id = bound(tx, digest) })
	if err != nil || id == "" {
		return Approval{}, false, "", err
	}
	a, release, err := s.ledger.Locked(ctx, id)
	if errors.Is(err, ErrNotFound) {
		return Approval{}, false, id, nil
	}
	if err != nil {
		return Approval{}, false, "", err
	}
	defer release()
	if a.open() && a.at(s.now()).Status == Expired {
		return Approval{}, false, "", rules{s}.Expire(ctx, a)
	}
	if a.open() {
		return a, true, "", nil
	}
	return Approval{}, false, id, nil
}
