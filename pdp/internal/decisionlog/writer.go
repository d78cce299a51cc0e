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

// writer writes the segments, and nothing else does. Calls wait in its queue, or write a frame of the journal themselves: see frames.
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

// active is the segment that the writer writes to.
type active struct {
	*segment.File
	opened  time.Time // when it was begun
	charged *charges
}

// life has two channels: stop is closed to end the writer, and the writer closes done when it has ended.
type life struct{ stop, done chan struct{} }

// told has what the writer publishes once records are durable.
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

// A transaction that has so many bytes or records takes no further calls.
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
			switch {
			case w.untilDue() > 0:
			case w.failed != nil:
				w.resumeWriting()
			case w.commitPending(nil, true) == nil:
				w.rotateIfDue()
			}
		case <-w.life.stop:
			for {
				select {
				case c := <-w.queue.calls:
					w.serveCalls(w.gather(c))
				default:
					return
				}
			}
		}
		timer.Reset(w.untilDue())
	}
}

// untilDue returns how long the writer may sleep without a call.
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

// unhurried is how long the writer waits for further calls if no caller waits for the present ones:
// a transaction costs much the same whatever is in it.
const unhurried = 20 * time.Millisecond

// gather returns c and the calls that wait, so that they share one transaction. While that transaction
// is made durable, further calls gather in the queue.
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

// nextCall returns a call that waits, or nil. If no caller waits for the call before, as in best
// effort, nextCall also waits for a call until enough fires.
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

// serveCalls writes calls and answers them. At most the last call is an order.
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

// answerCalls gives back what calls took of the queue, and hands their outcome to the callers that wait.
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

// whileHeld fills the segment with all durable frames, keeps further frames from being written, and calls do. So the work of do
// comes after all that was answered, and has a time before that of all later answers.
func (w *writer) whileHeld(do func() error) error {
	defer w.frames.releaseFlights()
	w.frames.holdFlights()
	if err := w.fillUntilIdle(); err != nil {
		return err
	}
	return do()
}

// fillUntilIdle fills the segment until no frame is left that may be written.
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

// commitPending commits the durable frames, then calls, and the record of dropped calls. If the journal cannot be written,
// it fails the log.
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

// fillSegment fills the segment with all durable frames, and with calls after them. Frames that become durable
// meanwhile are left to the next run: they may come as fast as the segment can be filled.
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

// recordDropped returns the record of dropped calls, or nil if no call was dropped.
func (w *writer) recordDropped(lost loss) []*call {
	if lost.Count == 0 {
		return nil
	}
	return []*call{w.ownRecord("", format.EventDropped, lost.addTo(map[string]any{}))}
}

// unavailable returns the error that callers get of a log that failed, or nil.
func (w *writer) unavailable() error {
	if w.failed == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", segment.ErrUnavailable, w.failed)
}

// ownRecord returns a call with an administrative record. caller is the one who asked for it, or "".
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

// makeVisible has readers see the records below size, and wakes readers that wait for them.
func (w *writer) makeVisible(size uint64) {
	w.reader.SetSize(size)
	next := make(chan struct{})
	close(*w.told.grown.Swap(&next))
}
