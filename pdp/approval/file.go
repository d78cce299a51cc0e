package approval

import (
	"context"
	"errors"
	"fmt"
	"time"

	"policy-service/evaluation"
)

// File asks for an approval, once: where one that is bound to the same digest waits,
// or was approved, it is that one.
func (s *Store) File(ctx context.Context, q ApprovalRequest) (Approval, error) {
	if err := errors.Join(s.fits(&q), s.ready(ctx)); err != nil {
		return Approval{}, err
	}
	release, err := s.lock(ctx, "digest "+string(q.Digest[:])) // no id has a space
	if err != nil {
		return Approval{}, err
	}
	defer release()
	if a, joined, err := s.join(ctx, q.Digest); joined || err != nil {
		return a, err
	}
	now := s.now()
	m := &move{store: s, to: Approval{
		ApprovalRequest: q,
		ID:              s.options.NewID(),
		Version:         1,
		Status:          Pending,
		FiledAt:         now,
		ExpiresAt:       now.Add(q.Terms.Timeout),
	}}
	m.step(Step{Name: StepFiled, At: now, Caller: q.Caller})
	mine, err := s.lock(ctx, m.to.ID)
	if err != nil {
		return Approval{}, err
	}
	defer mine()
	m.allowed = func() error { return s.limit(&q, now) }
	return s.commit(ctx, m)
}

// fits refuses what could not be shown, or could be approved by nobody or by anybody.
func (s *Store) fits(q *ApprovalRequest) error {
	if size := len(q.Shown) + len(q.Said); size > s.options.Limits.MaxShown {
		return fmt.Errorf("%w: %d bytes, and %d are the most", ErrTooLarge, size, s.options.Limits.MaxShown)
	}
	if t := q.Terms; t.Quorum < 1 || t.Uses < 1 || t.Timeout <= 0 || t.ValidFor <= 0 {
		return fmt.Errorf("%w: terms of an approval without quorum, uses, timeout or validity", ErrInvalid)
	}
	return nil
}

// join finds the open approval that is bound to a digest, and ends one whose time is up.
func (s *Store) join(ctx context.Context, digest [32]byte) (a Approval, joined bool, err error) {
	err = s.view(func(tx values) (err error) {
		a, joined, err = bound(tx, digest)
		return err
	})
	if err != nil || !joined {
		return Approval{}, false, err
	}
	a, release, err := s.locked(ctx, a.ID)
	if err != nil {
		return Approval{}, false, err
	}
	defer release()
	now := s.now()
	if a.open() && a.at(now).Status == Expired {
		a, err = s.expire(ctx, a, now)
	}
	if err != nil || !a.open() {
		return Approval{}, false, err
	}
	return a, true, nil
}

// limit is asked by the writer, so that nobody comes between it and the new one.
func (s *Store) limit(q *ApprovalRequest, now time.Time) error {
	most := s.options.Limits
	subject, caller, tenant := s.memory.counts(q)
	switch {
	case caller >= most.MaxPendingPerCaller:
		return &LimitError{RetryAfter: laterOn, OfCaller: true}
	case subject >= most.MaxPendingPerSubject, tenant >= most.MaxPendingPerTenant:
		return &LimitError{RetryAfter: laterOn}
	}
	// What a caller has is looked at before its subject has a bucket, or one that names ever
	// new subjects would leave none to others; and it is taken after, so that a subject that
	// asks too often takes nothing from the others for whom its gateway asks.
	by := owner{q.Tenant, evaluation.Ref{ID: q.Caller}}
	if wait := s.asking.wait(by, now); wait > 0 {
		return &LimitError{RetryAfter: wait, OfCaller: true}
	}
	if wait, ok := s.rates.take(q.owner(), now); !ok {
		return &LimitError{RetryAfter: wait}
	}
	s.asking.take(by, now)
	return nil
}

// laterOn is when to try again where a person must decide before: nobody knows when.
const laterOn = time.Minute
