package decisionlog

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"policy-service/pdp/internal/decisionlog/segment"
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

// queue has the calls that wait for the writer.
type queue struct {
	calls chan *call
	bytes *semaphore.Weighted // of the calls
	most  int64               // of the bytes, for one caller

	mu      sync.Mutex
	callers map[string]*share // with calls that are not small

	ending sync.RWMutex // guards closed; held for reading while a call goes into the queue
	closed bool
}

// call is what one Append, or one order, asks of the writer.
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
	waits   bool       // a caller waits
	reply   chan error // for it, unless it waits for a frame
}

// queueLength is how many calls may wait. Their bytes are bounded by an option.
const queueLength = 4096

// offerCall hands over a call that no caller waits for, or counts it as dropped.
func (w *writer) offerCall(c *call) error {
	q := &w.queue
	q.ending.RLock()
	defer q.ending.RUnlock()
	if q.closed {
		w.accounts.giveBackComing(c)
		return ErrClosed
	}
	c.size = min(c.size, w.options.QueueBytes)
	if q.tryRoom(c) {
		select {
		case q.calls <- c:
			return nil
		default:
			q.giveBackRoom(c)
		}
	}
	w.accounts.giveBackComing(c)
	w.state.countDropped(len(c.entries), c.at)
	return nil
}

// submitCall hands over a call and waits for its outcome.
func (w *writer) submitCall(ctx context.Context, c *call) error {
	c.waits, c.reply = true, make(chan error, 1) // so that the writer never waits for a caller that has gone
	if err := w.admitCall(ctx, c); err != nil {
		return err
	}
	if err := w.queue.send(ctx, c); err != nil {
		w.queue.giveBackRoom(c)
		w.accounts.giveBackComing(c)
		return err
	}
	select {
	case err := <-c.reply:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", segment.ErrUnavailable, ctx.Err())
	}
}

// admitCall waits until a call may wait for the writer, or for its frame.
func (w *writer) admitCall(ctx context.Context, c *call) error {
	q := &w.queue
	c.size = min(c.size, w.options.QueueBytes)
	var err error
	one := q.joinShare(c)
	if one != nil {
		err = one.bytes.Acquire(ctx, q.shareBytes(c))
	}
	shared := err == nil
	if shared {
		err = q.bytes.Acquire(ctx, c.size)
	}
	if err != nil {
		q.quitShare(c, shared)
		w.accounts.giveBackComing(c)
		return fmt.Errorf("%w: %w", segment.ErrUnavailable, err)
	}
	return nil
}

// runHeld calls do on the writer between two transactions, after all that was answered. See [writer.whileHeld].
func (w *writer) runHeld(ctx context.Context, do func() error) error {
	return w.submitCall(ctx, &call{do: func() error { return w.whileHeld(do) }})
}

// close closes the queue. It returns false if the queue was closed before.
func (q *queue) close() bool {
	q.ending.Lock()
	defer q.ending.Unlock()
	again := q.closed
	q.closed = true
	return !again
}

// send hands a call to the writer.
func (q *queue) send(ctx context.Context, c *call) error {
	q.ending.RLock()
	defer q.ending.RUnlock()
	if q.closed {
		return ErrClosed
	}
	select {
	case q.calls <- c:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", segment.ErrUnavailable, ctx.Err())
	}
}

// share is what may wait of one caller.
type share struct {
	bytes *semaphore.Weighted
	users int // calls that have some of it or wait for it; with queue.mu
}

// tryRoom takes room for a call if there is some now, and reports whether it did.
func (q *queue) tryRoom(c *call) bool {
	one := q.joinShare(c)
	shared := one == nil || one.bytes.TryAcquire(q.shareBytes(c))
	if shared && q.bytes.TryAcquire(c.size) {
		return true
	}
	q.quitShare(c, shared)
	return false
}

// giveBackRoom gives back the room of a call that does not wait any more.
func (q *queue) giveBackRoom(c *call) {
	q.bytes.Release(c.size)
	q.quitShare(c, true)
}

func (q *queue) shareBytes(c *call) int64 { return min(c.size, q.most) }

// joinShare returns the share of a call's caller, or nil if the call is small.
func (q *queue) joinShare(c *call) *share {
	if c.size <= smallCall {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	one := q.callers[c.caller]
	if one == nil {
		one = &share{bytes: semaphore.NewWeighted(q.most)}
		q.callers[c.caller] = one
	}
	one.users++
	return one
}

// quitShare ends what joinShare began, and gives back the call's part of the share if it had one. A
// caller without calls is forgotten.
func (q *queue) quitShare(c *call, had bool) {
	if c.size <= smallCall {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	one := q.callers[c.caller]
	if had {
		one.bytes.Release(q.shareBytes(c))
	}
	if one.users--; one.users == 0 {
		delete(q.callers, c.caller)
	}
}
