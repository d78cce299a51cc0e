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
	// queueShares is the part of the queue that this is where nobody waits: more of one caller is
	// dropped, so that it has nothing of anybody else's dropped.
	queueShares = 4
	// smallCall is what nobody counts: a thousand of them fit into a transaction.
	smallCall = 8 << 10
)

// shares bound what waits of each caller.
type shares struct {
	most int64 // of one caller

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

// hasRoom is waits for who does not wait.
func (l *Log) hasRoom(c *call) bool {
	if !l.shares.try(c) {
		return false
	}
	if !l.bytes.TryAcquire(c.size) {
		l.shares.leave(c, true)
		return false
	}
	return true
}

// leaves gives back what a call had, once nothing of it waits any more.
func (l *Log) leaves(c *call) {
	l.bytes.Release(c.size)
	l.shares.leave(c, true)
}

func (s *shares) part(c *call) int64 { return min(c.size, s.most) }

func (s *shares) take(ctx context.Context, c *call) error {
	if c.size <= smallCall {
		return nil
	}
	err := s.join(c).bytes.Acquire(ctx, s.part(c))
	if err != nil {
		s.leave(c, false)
	}
	return err
}

func (s *shares) try(c *call) bool {
	if c.size <= smallCall || s.join(c).bytes.TryAcquire(s.part(c)) {
		return true
	}
	s.leave(c, false)
	return false
}

func (s *shares) join(c *call) *share {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.of[c.caller]
	if one == nil {
		if s.of == nil {
			s.of = map[string]*share{}
		}
		one = &share{bytes: semaphore.NewWeighted(s.most)}
		s.of[c.caller] = one
	}
	one.users++
	return one
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
		one.bytes.Release(s.part(c))
	}
	if one.users--; one.users == 0 {
		delete(s.of, c.caller)
	}
}
