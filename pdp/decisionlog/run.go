package decisionlog

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// One transaction takes no more calls once it has so many bytes or records.
const (
	commitBytes   = 8 << 20
	commitRecords = 8192
)

// run is the writer's goroutine.
func (l *Log) run() {
	defer close(l.done)
	timer := time.NewTimer(l.wait())
	defer timer.Stop()
	for {
		select {
		case c := <-l.queue:
			l.serve(l.gather(c))
		case <-timer.C:
			l.tick()
		case <-l.stop:
			l.drain()
			return
		}
		timer.Reset(l.wait())
	}
}

// wait is how long the writer may sleep when nobody calls.
func (l *Log) wait() time.Duration {
	t := &l.w.tail
	switch {
	case errors.Is(l.w.failed, ErrDamaged): // somebody must see to it, and what bbolt leaks in each try adds up
		return max(time.Minute, l.options.RetryEvery) - time.Since(l.w.tried)
	case l.w.failed != nil:
		return l.options.RetryEvery - time.Since(l.w.tried)
	case t.edge.size > t.checkpointed:
		return min(l.options.CheckpointEvery-time.Since(t.checkpointedAt), l.options.CheckpointIdle-time.Since(t.appended))
	}
	return l.options.CheckpointEvery - time.Since(t.checkpointedAt)
}

// tick does what is due.
func (l *Log) tick() {
	if l.wait() > 0 {
		return
	}
	if l.w.failed != nil {
		l.recover()
	} else if err := l.transact(nil, order{checkpoint: true}); err != nil {
		l.fail(err)
	} else {
		l.turn()
	}
}

// unhurried is how long the writer waits for more to write where nobody waits for it:
// a transaction costs much the same whatever is in it.
const unhurried = 5 * time.Millisecond

// gather takes what waits besides c, so that all of it shares one transaction:
// while that is made durable the next ones gather by themselves.
func (l *Log) gather(c *call) []*call {
	calls := []*call{c}
	var enough <-chan time.Time
	for bytes, records := c.size, len(c.entries); c.do == nil && bytes < commitBytes && records < commitRecords; {
		if enough == nil && c.reply == nil {
			enough = time.After(unhurried)
		}
		next := l.another(c, enough)
		if next == nil {
			return calls
		}
		c = next
		calls = append(calls, c)
		bytes, records = bytes+c.size, records+len(c.entries)
	}
	return calls
}

// another is a call that waits, and where nobody waits for the one before, in best
// effort, also one that comes soon.
func (l *Log) another(before *call, enough <-chan time.Time) *call {
	select {
	case c := <-l.queue:
		return c
	default:
	}
	if before.reply != nil {
		return nil
	}
	select {
	case c := <-l.queue:
		return c
	case <-enough:
	case <-l.stop:
	}
	return nil
}

func (l *Log) drain() {
	for {
		select {
		case c := <-l.queue:
			l.serve(l.gather(c))
		default:
			return
		}
	}
}

// serve writes calls and answers them. Of them at most the last is an order.
func (l *Log) serve(calls []*call) {
	writes := calls
	last := calls[len(calls)-1]
	if last.do != nil {
		writes = calls[:len(calls)-1]
	}
	if len(writes) > 0 {
		l.answer(writes, l.write(writes))
	}
	if last.do != nil {
		err := l.unavailable()
		if err == nil {
			err = last.do()
		}
		l.answer(calls[len(calls)-1:], err)
	}
	l.turn()
}

// write commits calls, together with what is to be said of records dropped before.
func (l *Log) write(calls []*call) error {
	if err := l.unavailable(); err != nil {
		return err
	}
	lost, _ := l.state.take()
	calls = append(calls[:len(calls):len(calls)], l.told(lost)...)
	if err := l.transact(calls, order{}); err != nil {
		l.state.giveBack(lost)
		l.fail(err)
		return l.unavailable()
	}
	return nil
}

// told is the record of what was dropped, where something was.
func (l *Log) told(lost loss) []*call {
	if lost.Count == 0 {
		return nil
	}
	return []*call{l.own(EventDropped, lost.details(map[string]any{}))}
}

// unavailable is the error of a log that failed.
func (l *Log) unavailable() error {
	if l.w.failed == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, l.w.failed)
}

func (l *Log) answer(calls []*call, err error) {
	for _, c := range calls {
		l.leaves(c)
		if err != nil {
			l.accounts.giveBack(c)
		}
		switch {
		case c.reply != nil:
			if err != nil {
				l.state.refuse(len(c.entries))
			}
			c.reply <- err
		case err != nil:
			l.state.drop(len(c.entries), c.at)
		}
	}
}

// own is a call with a record of the log's own.
func (l *Log) own(event string, about map[string]any) *call { return l.ownFor("", event, about) }

// ownFor is the same of what somebody asked for.
func (l *Log) ownFor(caller, event string, about map[string]any) *call {
	p, err := prepare(Entry{ID: l.options.NewID(), Kind: KindAdmin, Caller: caller, Event: event, Details: details(about)}, l.kinds)
	if err != nil {
		panic(err) // an event of ours is always a record
	}
	c := &call{entries: []prepared{p}, at: l.options.Now()}
	c.weight = weigh(c.entries)
	return c
}

// record puts an event of the log's own on record. Only the writer calls it.
func (l *Log) record(event string, about map[string]any) error {
	return l.transact([]*call{l.own(event, about)}, order{})
}

// order has the writer do something between two transactions.
func (l *Log) order(ctx context.Context, do func() error) error {
	return l.submit(ctx, &call{do: do})
}

// Checkpoint makes a signed checkpoint now and returns it.
func (l *Log) Checkpoint(ctx context.Context) (signed []byte, err error) {
	return l.signed(ctx, func(*tail) bool { return false })
}

// signed is the newest checkpoint, if it will do, or one that is made now. The writer has
// the newest in memory: it was checked when the log was opened, or made since.
func (l *Log) signed(ctx context.Context, willDo func(*tail) bool) (signed []byte, err error) {
	err = l.order(ctx, func() error {
		if !willDo(&l.w.tail) {
			if err := l.transact(nil, order{checkpoint: true}); err != nil {
				l.fail(err)
				return l.unavailable()
			}
		}
		signed = l.w.tail.note
		return nil
	})
	if err != nil {
		return nil, err // signed is the writer's still
	}
	return signed, nil
}

// Rotate seals the active segment, so that all that is on record now can be read by
// others. It returns when the digest of the segment is on record too, or never will be:
// then the segment can be rewritten with [Log.Replace], if it was not altered.
func (l *Log) Rotate(ctx context.Context) error {
	var old *segment
	var prepared <-chan struct{}
	err := l.order(ctx, func() error {
		old = l.w.active
		if l.w.next == nil { // it takes long, and so is made beside the writer
			l.w.next = l.prepareAside(old.number + 1)
		}
		prepared = l.w.next.done
		return nil
	})
	if err != nil {
		return err // what was set is the writer's still
	}
	select {
	case <-prepared:
	case <-ctx.Done():
		return ctx.Err()
	}
	err = l.order(ctx, func() error {
		if l.w.active.number != old.number { // the writer saw by itself that it was full
			return nil
		}
		return l.rotate()
	})
	if err != nil {
		return err
	}
	if err := l.digests.wait(ctx, old.number); err != nil && !errors.Is(err, ErrDamaged) {
		return err
	}
	return old.retire() // if that is not yet done
}
