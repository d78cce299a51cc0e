package decisionlog

import (
	"context"
	"sync"

	"golang.org/x/sync/semaphore"
)

const (
	// callerBytes is what may wait for the writer of one caller, of calls that are not small: half of
	// a transaction, so that everybody else's records are in the next one or the one after. Whoever
	// has more waits behind itself.
	callerBytes = commitBytes / 2
	// smallCall is what nobody counts: a thousand of them fit into a transaction.
	smallCall = 8 << 10
)

// shares bound what waits of each caller. The zero value is ready.
type shares struct {
	mu sync.Mutex
	of map[string]*share
}

type share struct {
	bytes *semaphore.Weighted
	users int // calls that have some of it or wait for it; with shares.mu
}

// waits waits until a call may wait for the writer.
func (l *Log) waits(ctx context.Context, c *call) error {
	if err := l.shares.take(ctx, c); err != nil {
		return err
	}
	err := l.bytes.Acquire(ctx, c.size)
	if err != nil {
		l.shares.leave(c, true)
	}
	return err
}

// leaves gives back what a call had, once nothing of it waits any more.
func (l *Log) leaves(c *call) {
	l.bytes.Release(c.size)
	l.shares.leave(c, true)
}

func (c *call) share() int64 { return min(c.size, callerBytes) }

func (s *shares) take(ctx context.Context, c *call) error {
	if c.size <= smallCall {
		return nil
	}
	s.mu.Lock()
	one := s.of[c.caller]
	if one == nil {
		if s.of == nil {
			s.of = map[string]*share{}
		}
		one = &share{bytes: semaphore.NewWeighted(callerBytes)}
		s.of[c.caller] = one
	}
	one.users++
	s.mu.Unlock()
	err := one.bytes.Acquire(ctx, c.share())
	if err != nil {
		s.leave(c, false)
	}
	return err
}

// leave forgets a caller of whom nothing waits.
func (s *shares) leave(c *call, had bool) {
	if c.size <= smallCall {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.of[c.caller]
	if had {
		one.bytes.Release(c.share())
	}
	if one.users--; one.users == 0 {
		delete(s.of, c.caller)
	}
}
