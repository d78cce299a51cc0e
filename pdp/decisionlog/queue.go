package decisionlog

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
)

const (
	// callerBytes is how many bytes of one caller may wait for the writer, small calls apart: half of
	// a transaction, so that the records of all others are in the next transaction or the one after. A
	// caller with more waits behind itself.
	callerBytes = commitBytes / 2
	// queueShares is the part of the queue that one caller may have in best effort. What exceeds it is
	// dropped, so that one caller does not get the records of others dropped.
	queueShares = 4
	// smallCall is the size up to which calls are not counted: a thousand of them fit into a transaction.
	smallCall = 8 << 10
)

// queue is what waits for the writer.
type queue struct {
	calls  chan *call
	bytes  *semaphore.Weighted // of the calls
	shares shares              // of callers in that

	ending sync.RWMutex // guards closed; held for reading while a call goes into the queue
	closed bool
}

// call is what one Append, or one order, wants of the writer.
type call struct {
	entries []prepared
	size    int64
	caller  string
	payer   string // whose account it counts toward
	weight  int64
	taken   bool // it counts already
	at      time.Time
	do      func() error // an order, instead of entries
	first   uint64
	reply   chan error // nil if no caller waits
}

// queueLength is how many calls may wait; how many bytes is an option.
const queueLength = 4096

// close closes the queue. It returns false if the queue was closed already.
func (q *queue) close() bool {
	q.ending.Lock()
	defer q.ending.Unlock()
	again := q.closed
	q.closed = true
	return !again
}

// put hands a call to the writer.
func (q *queue) put(ctx context.Context, c *call) error {
	q.ending.RLock()
	defer q.ending.RUnlock()
	if q.closed {
		return ErrClosed
	}
	select {
	case q.calls <- c:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrUnavailable, ctx.Err())
	}
}

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

// take waits until a call may wait for the writer.
func (q *queue) take(ctx context.Context, c *call) error {
	if err := q.shares.take(ctx, c); err != nil {
		return err
	}
	err := q.bytes.Acquire(ctx, c.size)
	if err != nil {
		q.shares.leave(c, true)
	}
	return err
}

// try is take for a call that does not wait.
func (q *queue) try(c *call) bool {
	if !q.shares.try(c) {
		return false
	}
	if !q.bytes.TryAcquire(c.size) {
		q.shares.leave(c, true)
		return false
	}
	return true
}

// leave gives back what a call took, once the call does not wait any more.
func (q *queue) leave(c *call) {
	q.bytes.Release(c.size)
	q.shares.leave(c, true)
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

// leave forgets a caller without calls that wait.
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
