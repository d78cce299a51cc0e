package decisionlog

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/index"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/segment"
)

// writer writes the log. It alone writes: calls of others wait in its queue.
type writer struct {
	reader   *segment.Reader
	data     string
	options  Options
	queue    queue
	frames   *frames
	state    state // readable by others
	told     told
	accounts *accounts
	life     life

	// The writer's goroutine alone touches the rest.
	active *active // nil while the log cannot be written
	tail   tail
	tails  []record.UnsignedTail // that are on record
	key    segment.Key
	failed error
	tried  time.Time // when a new segment was last tried for, or the failed log
}

// active is the segment that is written to.
type active struct {
	*segment.File
	opened  time.Time // when it was begun
	charged *charges
}

// life ends when stop is closed, and done once the writer has ended.
type life struct{ stop, done chan struct{} }

// told are the receivers of durable records.
type told struct {
	index *index.Index
	grown atomic.Pointer[chan struct{}] // closed when there are more records
	// signed is the newest checkpoint that is durable.
	signed atomic.Pointer[segment.Checkpoint]
}

func newWriter(r *segment.Reader, data string, o Options) *writer {
	w := &writer{
		reader:   r,
		data:     data,
		options:  o,
		accounts: newAccounts(o.Now, o.On.Aged),
		life:     life{stop: make(chan struct{}), done: make(chan struct{})},
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
	w.frames = newFrames(o.Now, w.answerCalls, o.On.Commit)
	grown := make(chan struct{})
	w.told.grown.Store(&grown)
	return w
}

// One transaction takes no more calls once it has so many bytes or records.
const (
	commitBytes   = 8 << 20
	commitRecords = 8192
)

// run is the writer's goroutine.
func (w *writer) run() {
	defer close(w.life.done)
	timer := time.NewTimer(w.untilDue())
	defer timer.Stop()
	for {
		select {
		case c := <-w.queue.calls:
			w.serveCalls(w.gather(c))
		case <-w.frames.wake:
			if w.commitPending(nil, false) == nil {
				w.rotateIfDue()
			}
		case <-timer.C:
			w.tick()
		case <-w.life.stop:
			w.drain()
			return
		}
		timer.Reset(w.untilDue())
	}
}

// untilDue is how long the writer may sleep without a call.
func (w *writer) untilDue() time.Duration {
	t := &w.tail
	switch {
	case errors.Is(w.failed, record.ErrDamaged): // an operator must see to it, and the leaks of bbolt in each try add up
		return max(time.Minute, w.options.RetryEvery) - time.Since(w.tried)
	case w.failed != nil:
		return w.options.RetryEvery - time.Since(w.tried)
	case t.Edge.Size > t.Checkpointed:
		return min(w.options.Checkpoints.Every-time.Since(t.checkpointedAt), w.options.Checkpoints.Idle-time.Since(t.appended))
	}
	return w.options.Checkpoints.Every - time.Since(t.checkpointedAt)
}

// tick does due work.
func (w *writer) tick() {
	if w.untilDue() > 0 {
		return
	}
	if w.failed != nil {
		w.recover()
	} else if w.commitPending(nil, true) == nil {
		w.rotateIfDue()
	}
}

// unhurried is how long the writer waits for more to write if no caller waits for it:
// a transaction costs much the same whatever is in it.
const unhurried = 20 * time.Millisecond

// gather takes the waiting calls besides c, so that all of it shares one transaction:
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
	case <-w.life.stop:
	}
	return nil
}

func (w *writer) drain() {
	for {
		select {
		case c := <-w.queue.calls:
			w.serveCalls(w.gather(c))
		default:
			return
		}
	}
}

// serveCalls writes calls and answers them. Of them at most the last is an order.
func (w *writer) serveCalls(calls []*call) {
	writes := calls
	last := calls[len(calls)-1]
	if last.do != nil {
		writes = calls[:len(calls)-1]
	}
	if len(writes) > 0 {
		w.answerCalls(writes, w.commitPending(writes, false))
	}
	if last.do != nil {
		w.answerCalls(calls[len(calls)-1:], last.do())
	}
	w.rotateIfDue()
}

func (w *writer) answerCalls(calls []*call, err error) {
	for _, c := range calls {
		w.queue.giveBackRoom(c)
		if err != nil {
			w.accounts.giveBackComing(c)
		}
		switch {
		case c.waits:
			if err != nil {
				w.state.countRefused(len(c.entries))
			}
			if c.reply != nil {
				c.reply <- err
			}
		case err != nil:
			w.state.countDropped(len(c.entries), c.at)
		}
	}
}

// whileHeld does something while no frame flies, and all that is durable is filled.
func (w *writer) whileHeld(do func() error) error {
	defer w.frames.releaseFlights()
	if err := w.hold(); err != nil {
		return err
	}
	return do()
}

// hold fills the segment with all that is durable, and keeps frames from flying: the writer's work then comes
// after all that was answered, and its time before that of all that will be. It ends with release.
func (w *writer) hold() error {
	w.frames.holdFlights()
	return w.fillUntilIdle()
}

// fillUntilIdle fills the segment until no frame is left that may fly.
func (w *writer) fillUntilIdle() error {
	for {
		if err := w.commitPending(nil, false); err != nil {
			return err
		}
		if w.frames.waitForFlight() {
			return w.unavailable()
		}
	}
}

// commitPending commits the frames that are durable, and calls after them, together with the record of dropped calls.
// A journal that broke fails the log.
func (w *writer) commitPending(calls []*call, checkpoint bool) error {
	if err := w.unavailable(); err != nil {
		return err
	}
	if err := w.frames.flightError(); err != nil {
		return w.fail(fmt.Errorf("the journal: %w", err))
	}
	lost, _ := w.state.takeLost()
	calls = append(calls[:len(calls):len(calls)], w.recordDropped(lost)...)
	if err := w.fillSegment(calls, checkpoint); err != nil {
		w.state.giveBackLost(lost)
		return w.fail(err)
	}
	return nil
}

// fillSegment fills the segment with all frames that are durable, and with calls after them. It leaves frames that land
// meanwhile to the next time: they may come as fast as the segment can be filled.
func (w *writer) fillSegment(calls []*call, checkpoint bool) error {
	landed := w.frames.durableCount()
	for more := true; more; {
		var part transaction
		if part.frames, part.now, more = w.frames.durableFrames(landed); !more {
			part.calls, part.checkpoint = calls, checkpoint
		}
		if part.isEmpty() {
			w.frames.forgetFilled(nil, func() {})
		} else if err := w.transact(part); err != nil {
			return err
		}
	}
	return nil
}

// recordDropped is the record of dropped calls, if there were some.
func (w *writer) recordDropped(lost loss) []*call {
	if lost.Count == 0 {
		return nil
	}
	return []*call{w.ownRecord("", format.EventDropped, lost.addTo(map[string]any{}))}
}

// unavailable is the error of a log that failed.
func (w *writer) unavailable() error {
	if w.failed == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", segment.ErrUnavailable, w.failed)
}

// ownRecord is a call with a record of the log's own. caller is "" if no caller asked for it.
func (w *writer) ownRecord(caller, event string, about any) *call {
	p, err := prepare(&record.Entry{
		Kind:    format.KindAdmin,
		Caller:  caller,
		Event:   event,
		Details: record.Details(about),
	}, w.options.NewID(), w.options.Kinds)
	if err != nil {
		panic(err) // an event of ours is always a record
	}
	c := &call{entries: []prepared{p}, at: w.options.Now()}
	c.weight = weightOf(c.entries)
	return c
}

// makeVisible makes records visible, and wakes readers that wait for them.
func (w *writer) makeVisible(size uint64) {
	w.reader.SetSize(size)
	next := make(chan struct{})
	close(*w.told.grown.Swap(&next))
}
