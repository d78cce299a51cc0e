package approval

import (
	"bytes"
	"context"
	"errors"
	"time"

	"go.etcd.io/bbolt"
)

// longestNap is how long Run sleeps at most: the clock may have been set.
const longestNap = time.Second

// Run does what is due until ctx ends: it ends what was waited for or could be used
// long enough, forgets what ended long ago, and does what could not be done before.
func (s *Store) Run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var latest, worked time.Time // by the machine's clock, and by ours
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			worked = s.now()
			s.attempt(ctx, s.ready, s.catchUp, s.expireDue, s.forgetOld, s.forgetTasks, func(context.Context) error { return s.strike() })
			latest = time.Now().Add(longestNap)
		case <-s.wake:
		}
		timer.Reset(min(s.nap(worked), time.Until(latest))) // else who is woken often never works
	}
}

func (s *Store) attempt(ctx context.Context, do ...func(context.Context) error) {
	for _, f := range do {
		if err := f(ctx); err != nil && ctx.Err() == nil {
			s.options.OnError(err)
		}
	}
}

// nap is how long nothing will be due. What was due when Run last worked could not be
// done then, and is tried again later.
func (s *Store) nap(worked time.Time) time.Duration {
	now, nap := s.now(), longestNap
	_ = s.view(func(tx values) error { // else there is nothing to be done
		key, _ := tx.Bucket([]byte(bucketDue)).Cursor().Seek(timeKey(worked.Add(1), ""))
		if key != nil {
			at, _ := readTimeKey(key)
			nap = max(0, min(nap, at.Sub(now)))
		}
		return nil
	})
	return nap
}

// catchUp settles reservations and puts on record what is not. Who has the lock of an
// approval does that by itself.
func (s *Store) catchUp(ctx context.Context) error {
	reserved, unrecorded := s.remembered().inDoubt()
	return errors.Join(s.each(ctx, unrecorded, s.record), s.each(ctx, reserved, s.settleAll))
}

// each does something with the approvals that nobody has the lock of. Where it cannot
// be done with one it is with the next, unless nothing can be written at all; the error
// is the first.
func (s *Store) each(ctx context.Context, ids []string, do func(context.Context, string) error) (first error) {
	for _, id := range ids {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		release, ok := s.locks.TryLock(id)
		if !ok {
			continue
		}
		err := do(ctx, id)
		release()
		if errors.Is(err, ErrNotFound) { // it was forgotten meanwhile
			err = nil
		}
		if first == nil {
			first = err
		}
		if errors.Is(err, ErrUnavailable) || errors.Is(err, ErrClosed) {
			break
		}
	}
	return first
}

func (s *Store) settleAll(ctx context.Context, id string) error {
	if err := s.record(ctx, id); err != nil {
		return err
	}
	a, err := s.read(id)
	if err != nil || len(a.Reserved) == 0 {
		return err
	}
	return s.settle(ctx, a, s.options.Recorded, a.Reserved...)
}

func (s *Store) expireDue(ctx context.Context) error {
	return s.past(ctx, bucketDue, s.now(), func(ctx context.Context, id string) error {
		if err := s.record(ctx, id); err != nil {
			return err
		}
		a, err := s.read(id)
		if now := s.now(); err == nil && a.open() && a.at(now).Status == Expired {
			_, err = s.expire(ctx, a, now)
		}
		return err
	})
}

// expire ends an approval whose time is up. It ended then, not now.
func (s *Store) expire(ctx context.Context, a Approval, now time.Time) (Approval, error) {
	m := s.move(a)
	m.to = m.to.at(now)
	m.step(Step{Name: StepExpired, At: now})
	return s.commit(ctx, m)
}

func (s *Store) forgetOld(ctx context.Context) error {
	return s.past(ctx, bucketEnded, s.now().Add(-s.options.Retain), func(ctx context.Context, id string) error {
		a, err := s.read(id)
		if err != nil || len(a.Reserved) > 0 || len(s.remembered().unrecorded(id)) > 0 {
			return err
		}
		return s.update(func(c *change) error { return c.forget(&a) })
	})
}

// batch is how many ids are read at once.
const batch = 1000

// past does something with all that stand under a moment that is not after now.
func (s *Store) past(ctx context.Context, bucket string, now time.Time, do func(context.Context, string) error) error {
	for after := []byte(nil); ; {
		ids, last, err := s.until(bucket, after, now)
		if err == nil {
			err = s.each(ctx, ids, do)
		}
		if err != nil || len(ids) < batch {
			return err
		}
		after = last
	}
}

func (s *Store) until(bucket string, after []byte, now time.Time) (ids []string, last []byte, err error) {
	err = s.view(func(tx values) error {
		c := tx.Bucket([]byte(bucket)).Cursor()
		for key := beyond(c, after); key != nil && len(ids) < batch; key, _ = c.Next() {
			at, id := readTimeKey(key)
			if at.After(now) {
				break
			}
			ids, last = append(ids, id), bytes.Clone(key)
		}
		return nil
	})
	return ids, last, err
}

// beyond is the first key after one, or the first of all.
func beyond(c *bbolt.Cursor, after []byte) []byte {
	key, _ := c.Seek(after)
	if len(after) > 0 && bytes.Equal(key, after) {
		key, _ = c.Next()
	}
	return key
}
