package decisionlog

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
)

// writer writes the log. It alone writes: what others want written waits in its queue.
type writer struct {
	reader   *Reader
	options  Options
	queue    queue
	state    state                         // what others may ask for
	grown    atomic.Pointer[chan struct{}] // closed when there are more records
	accounts *accounts
	digests  *digests
	stop     chan struct{}
	done     chan struct{}

	// The writer's goroutine alone touches the rest.
	active *segment // nil while the log cannot be written
	tail   tail
	key    key
	failed error
	next   *nextSegment
	tried  time.Time // when a new segment was last tried for, or the failed log
}

func newWriter(r *Reader, o Options) *writer {
	w := &writer{
		reader:   r,
		options:  o,
		accounts: newAccounts(o.Now, o.On.Aged),
		stop:     make(chan struct{}),
		done:     make(chan struct{}),
		queue: queue{
			calls:   make(chan *call, queueLength),
			bytes:   semaphore.NewWeighted(o.QueueBytes),
			most:    callerBytes,
			callers: map[string]*share{},
		},
	}
	if o.Mode == BestEffort {
		w.queue.most = o.QueueBytes / queueShares
	}
	w.digests = newDigests(w)
	grown := make(chan struct{})
	w.grown.Store(&grown)
	return w
}

// offer hands over a call that no caller waits for, or counts it as dropped.
func (w *writer) offer(c *call) error {
	q := &w.queue
	q.ending.RLock()
	defer q.ending.RUnlock()
	if q.closed {
		w.accounts.giveBack(c)
		return ErrClosed
	}
	c.size = min(c.size, w.options.QueueBytes)
	if q.try(c) {
		select {
		case q.calls <- c:
			return nil
		default:
			q.leave(c)
		}
	}
	w.accounts.giveBack(c)
	w.state.drop(len(c.entries), c.at)
	return nil
}

// submit hands over a call and waits for what becomes of it.
func (w *writer) submit(ctx context.Context, c *call) error {
	c.reply = make(chan error, 1) // so that the writer never waits for a caller that has gone
	c.size = min(c.size, w.options.QueueBytes)
	if err := w.queue.take(ctx, c); err != nil {
		w.accounts.giveBack(c)
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	if err := w.queue.put(ctx, c); err != nil {
		w.queue.leave(c)
		w.accounts.giveBack(c)
		return err
	}
	select {
	case err := <-c.reply:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrUnavailable, ctx.Err())
	}
}

// One transaction takes no more calls once it has so many bytes or records.
const (
	commitBytes   = 8 << 20
	commitRecords = 8192
)

// run is the writer's goroutine.
func (w *writer) run() {
	defer close(w.done)
	timer := time.NewTimer(w.wait())
	defer timer.Stop()
	for {
		select {
		case c := <-w.queue.calls:
			w.serve(w.gather(c))
		case <-timer.C:
			w.tick()
		case <-w.stop:
			w.drain()
			return
		}
		timer.Reset(w.wait())
	}
}

// wait is how long the writer may sleep without a call.
func (w *writer) wait() time.Duration {
	t := &w.tail
	switch {
	case errors.Is(w.failed, ErrDamaged): // an operator must see to it, and what bbolt leaks in each try adds up
		return max(time.Minute, w.options.RetryEvery) - time.Since(w.tried)
	case w.failed != nil:
		return w.options.RetryEvery - time.Since(w.tried)
	case t.edge.size > t.checkpointed:
		return min(w.options.CheckpointEvery-time.Since(t.checkpointedAt), w.options.CheckpointIdle-time.Since(t.appended))
	}
	return w.options.CheckpointEvery - time.Since(t.checkpointedAt)
}

// tick does what is due.
func (w *writer) tick() {
	if w.wait() > 0 {
		return
	}
	if w.failed != nil {
		w.recover()
	} else if err := w.transact(nil, order{checkpoint: true}); err != nil {
		w.fail(err)
	} else {
		w.rotateIfDue()
	}
}

// unhurried is how long the writer waits for more to write if no caller waits for it:
// a transaction costs much the same whatever is in it.
const unhurried = 20 * time.Millisecond

// gather takes what waits besides c, so that all of it shares one transaction:
// while that is made durable the next ones gather by themselves.
func (w *writer) gather(c *call) []*call {
	calls := []*call{c}
	var enough <-chan time.Time
	for bytes, records := c.size, len(c.entries); c.do == nil && bytes < commitBytes && records < commitRecords; {
		if enough == nil && c.reply == nil {
			enough = time.After(unhurried)
		}
		next := w.nextCall(c, enough)
		if next == nil {
			return calls
		}
		c = next
		calls = append(calls, c)
		bytes, records = bytes+c.size, records+len(c.entries)
	}
	return calls
}

// nextCall is a call that waits. If no caller waits for the call before, in best
// effort, it is also one that comes soon.
func (w *writer) nextCall(before *call, enough <-chan time.Time) *call {
	select {
	case c := <-w.queue.calls:
		return c
	default:
	}
	if before.reply != nil {
		return nil
	}
	select {
	case c := <-w.queue.calls:
		return c
	case <-enough:
	case <-w.stop:
	}
	return nil
}

func (w *writer) drain() {
	for {
		select {
		case c := <-w.queue.calls:
			w.serve(w.gather(c))
		default:
			return
		}
	}
}

// serve writes calls and answers them. Of them at most the last is an order.
func (w *writer) serve(calls []*call) {
	writes := calls
	last := calls[len(calls)-1]
	if last.do != nil {
		writes = calls[:len(calls)-1]
	}
	if len(writes) > 0 {
		w.answer(writes, w.write(writes))
	}
	if last.do != nil {
		err := w.unavailable()
		if err == nil {
			err = last.do()
		}
		w.answer(calls[len(calls)-1:], err)
	}
	w.rotateIfDue()
}

// write commits calls, together with the record of what was dropped before.
func (w *writer) write(calls []*call) error {
	if err := w.unavailable(); err != nil {
		return err
	}
	lost, _ := w.state.take()
	calls = append(calls[:len(calls):len(calls)], w.dropped(lost)...)
	if err := w.transact(calls, order{}); err != nil {
		w.state.giveBack(lost)
		return w.fail(err)
	}
	return nil
}

// dropped is the record of what was dropped, if something was.
func (w *writer) dropped(lost loss) []*call {
	if lost.Count == 0 {
		return nil
	}
	return []*call{w.own("", EventDropped, lost.details(map[string]any{}))}
}

// unavailable is the error of a log that failed.
func (w *writer) unavailable() error {
	if w.failed == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, w.failed)
}

func (w *writer) answer(calls []*call, err error) {
	for _, c := range calls {
		w.queue.leave(c)
		if err != nil {
			w.accounts.giveBack(c)
		}
		switch {
		case c.reply != nil:
			if err != nil {
				w.state.refuse(len(c.entries))
			}
			c.reply <- err
		case err != nil:
			w.state.drop(len(c.entries), c.at)
		}
	}
}

// own is a call with a record of the log's own. caller is "" if no caller asked for it.
func (w *writer) own(caller, event string, about map[string]any) *call {
	p, err := prepare(Entry{
		ID:      w.options.NewID(),
		Kind:    KindAdmin,
		Caller:  caller,
		Event:   event,
		Details: details(about),
	}, w.options.Kinds)
	if err != nil {
		panic(err) // an event of ours is always a record
	}
	c := &call{entries: []prepared{p}, at: w.options.Now()}
	c.weight = weigh(c.entries)
	return c
}

// record puts an event of the log's own on record. Only the writer calls it.
func (w *writer) record(event string, about map[string]any) error {
	return w.transact([]*call{w.own("", event, about)}, order{})
}

// order makes the writer do something between two transactions.
func (w *writer) order(ctx context.Context, do func() error) error {
	return w.submit(ctx, &call{do: do})
}

// grow makes records visible, and wakes those who wait for them.
func (w *writer) grow(size uint64) {
	w.reader.size.Store(size)
	next := make(chan struct{})
	close(*w.grown.Swap(&next))
}
