package decisionlog

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/journal"
	"policy-service/pdp/internal/decisionlog/segment"
)

// frames gathers calls into frames of the journal, so that calls that come together share one sync.
//
// A frame is open while calls join it, then flying while it is written, then durable until the
// segment is filled with it. That is also the order of the records. One frame flies at a time:
// so a bad frame before a good one means damage, not an unfinished end.
//
// A joining caller writes: the one whose call makes a frame whole writes it for all. A frame is whole
// if as many have joined as lately waited together, so that a caller alone does not wait.
type frames struct {
	now    func() time.Time
	answer func(calls []*call, err error)
	wrote  func(Commit)
	// wake wakes the writer: to fill, to make room, or to see to a failure.
	wake chan struct{}

	mu      sync.Mutex
	journal *journal.Journal // nil if there is no journal to write to
	failed  error            // why no call can join
	closed  bool             // no call will ever join
	open    []*frame         // calls join the last one
	held    bool             // no frame may fly
	flight  flight
	backlog backlog
	pace    pace
	changed chan struct{} // closed when a frame is durable, or was filled
	buffer  []byte        // of the frame that flies; its writer alone uses it
}

// flight is the frame that is being written, and what keeps it from becoming durable.
type flight struct {
	frame   *frame // nil if no frame flies
	stalled bool   // it waits for room
	broken  error  // it cannot be written; the writer has to see to it
}

// over reports whether no frame flies, or only a frame that the writer must see to.
func (f *flight) over() bool { return f.frame == nil || f.stalled || f.broken != nil }

// backlog has the frames that are durable and not filled.
type backlog struct {
	frames  []*frame
	records int    // that they have
	bytes   int64  // of their calls
	landed  uint64 // how many frames became durable since the start
	filled  uint64 // how many of them were filled
	due     *time.Timer
}

// add appends frames.
func (b *backlog) add(some ...*frame) {
	for _, one := range some {
		b.records, b.bytes = b.records+one.records, b.bytes+one.size
	}
	if len(b.frames) == 0 && len(some) > 0 {
		b.due.Reset(fillEvery)
	}
	b.frames, b.landed = append(b.frames, some...), b.landed+uint64(len(some))
}

// remove removes the first n frames, which are filled.
func (b *backlog) remove(n int) {
	for _, one := range b.frames[:n] {
		b.records, b.bytes = b.records-one.records, b.bytes-one.size
	}
	b.frames, b.filled = append([]*frame(nil), b.frames[n:]...), b.filled+uint64(n) // the old array would keep the calls
	b.due.Stop()
	if len(b.frames) > 0 {
		b.due.Reset(fillEvery)
	}
}

// pace says how long an open frame waits for more calls.
type pace struct {
	peak    int         // how many calls lately waited together
	late    *time.Timer // ends the patience of
	awaited *frame
}

// waits reports whether a frame should wait for more calls, and sets the timer that ends its wait.
func (p *pace) waits(one *frame) bool {
	patience := min(patienceMost, time.Duration(p.peak)*patienceEach) - time.Since(one.began)
	if 10*len(one.calls) >= 9*p.peak || patience <= 0 {
		return false
	}
	if p.awaited != one {
		p.awaited = one
		p.late.Reset(patience)
	}
	return true
}

// frame has calls that one write of the journal makes durable together.
type frame struct {
	number  uint64 // in the journal, once it is durable
	time    time.Time
	began   time.Time // when its first call joined
	calls   []*call
	size    int64
	records int
	done    chan struct{} // closed once err is its outcome
	err     error
}

// add adds a call to a frame.
func (f *frame) add(c *call) {
	f.calls, f.size, f.records = append(f.calls, c), f.size+c.size, f.records+len(c.entries)
}

const (
	// frameBytes is the size from which a frame takes no more calls. Calls of callBytes and more are
	// no part of a frame: the writer puts them into the segment itself.
	frameBytes = 128 << 10
	callBytes  = 32 << 10
	// fillEvery is how long a durable frame waits until the segment is filled with it, if no more than
	// fillRecords or fillBytes wait, no file of the journal is full, and no reader waits.
	fillEvery   = 200 * time.Millisecond
	fillRecords = 4096
	fillBytes   = 2 << 20 // half of a file of the journal, so that no file is full by then
	// patienceEach is how long an open frame waits for others, for each caller that lately waited; patienceMost bounds that.
	patienceEach = 120 * time.Microsecond
	patienceMost = 8 * time.Millisecond
)

func newFrames(now func() time.Time, answer func([]*call, error), wrote func(Commit)) *frames {
	f := &frames{now: now, answer: answer, wrote: wrote, wake: make(chan struct{}, 1), failed: errors.New("its journal is not open"), changed: make(chan struct{})}
	f.pace.late, f.backlog.due = time.AfterFunc(time.Hour, f.patienceEnds), time.AfterFunc(time.Hour, f.wakeWriter)
	f.pace.late.Stop()
	f.backlog.due.Stop()
	return f
}

// joinFrame adds a call to a frame, and returns when the frame is durable.
func (f *frames) joinFrame(ctx context.Context, c *call) error {
	f.mu.Lock()
	if f.failed != nil {
		err := f.failed
		f.mu.Unlock()
		if !errors.Is(err, ErrClosed) {
			err = fmt.Errorf("%w: %w", segment.ErrUnavailable, err)
		}
		f.answer([]*call{c}, err)
		return err
	}
	n := len(f.open)
	if n == 0 || f.open[n-1].size >= frameBytes {
		f.open = append(f.open, &frame{began: time.Now(), done: make(chan struct{})})
		n++
	}
	one := f.open[n-1]
	one.add(c)
	ready := f.takeWhole()
	f.mu.Unlock()
	if ready != nil {
		f.writeFrame(ready)
	}
	select {
	case <-one.done:
		return one.err
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", segment.ErrUnavailable, ctx.Err())
	}
}

// takeWhole returns the next frame to write, or nil if none is whole or none may fly. The caller has the lock, and must write
// the frame.
func (f *frames) takeWhole() *frame {
	if f.held || f.flight.frame != nil || len(f.open) == 0 {
		return nil
	}
	one := f.open[0]
	if len(f.open) == 1 && !f.closed && f.pace.waits(one) {
		return nil
	}
	one.time = f.now() // in the order of the frames, whatever time it is when they are written
	f.open, f.flight.frame = slices.Delete(f.open, 0, 1), one
	return one
}

// patienceEnds writes a frame that waited long enough for more calls.
func (f *frames) patienceEnds() {
	f.mu.Lock()
	one := f.takeWhole()
	f.mu.Unlock()
	if one != nil {
		f.writeFrame(one)
	}
}

// writeFrame makes the frame that flies durable, and answers its calls.
func (f *frames) writeFrame(one *frame) {
	f.buffer = f.buffer[:0]
	for _, c := range one.calls {
		f.buffer = c.appendToFrame(f.buffer, one.time)
	}
	number, err := f.journal.Write(f.buffer)
	if err != nil {
		f.mu.Lock()
		if f.flight.stalled = errors.Is(err, journal.ErrFull); !f.flight.stalled {
			f.flight.broken = err
		}
		f.wakeWaiting()
		f.mu.Unlock()
		f.wakeWriter() // it makes room, or answers once the operator knows
		return
	}
	f.wrote(Commit{Records: one.records, Bytes: int(one.size), Calls: len(one.calls), Took: time.Since(one.began)})
	f.mu.Lock()
	one.number, f.flight.frame = number, nil
	f.backlog.add(one)
	many := f.backlog.records >= fillRecords || f.backlog.bytes >= fillBytes || f.journal.Turned()
	f.pace.peak = max(f.waitingCalls()+len(one.calls), f.pace.peak-max(1, f.pace.peak/16))
	next := f.takeWhole()
	f.wakeWaiting()
	f.mu.Unlock()
	f.answerFrame(one, nil)
	if many {
		f.wakeWriter()
	}
	if next != nil {
		go f.writeFrame(next)
	}
}

// answerFrame answers the calls of a frame.
func (f *frames) answerFrame(one *frame, err error) {
	f.answer(one.calls, err)
	one.err = err
	close(one.done)
}

// waitingCalls returns the number of calls in open frames.
func (f *frames) waitingCalls() (n int) {
	for _, one := range f.open {
		n += len(one.calls)
	}
	return n
}

func (f *frames) wakeWriter() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// wakeWaiting wakes all goroutines that wait for a change. The caller has the lock.
func (f *frames) wakeWaiting() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// durableCount returns how many frames have become durable since the log was opened.
func (f *frames) durableCount() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.backlog.landed
}

// durableFrames returns durable frames to fill the segment with, in order, as many as one transaction takes. It leaves out
// frames beyond the first landed ones. now is the time for the calls written with the frames: no later frame has an earlier time.
func (f *frames) durableFrames(landed uint64) (some []*frame, now time.Time, more bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	records, bytes := 0, int64(0)
	for i, one := range f.backlog.frames {
		if more = f.backlog.filled+uint64(i) < landed; !more || records >= commitRecords || bytes >= commitBytes {
			return some, one.time, more
		}
		some, records, bytes = append(some, one), records+one.records, bytes+one.size
	}
	if one := f.flight.frame; one != nil {
		return some, one.time, false
	}
	return some, f.now(), false
}

// forgetFilled forgets the first durable frames, which the segment has, and makes room for others. At the same moment grow makes
// their records visible, so that Status never counts them twice or not at all. A frame that waits for room is written
// again. It may have begun to wait after the last frame was filled, so some can be empty.
func (f *frames) forgetFilled(some []*frame, grow func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	grow()
	if n := len(some); n > 0 {
		f.backlog.remove(n)
		f.wakeWaiting()
		if f.journal != nil { // else the journal was read, and is not written to
			f.journal.Filled(some[n-1].number)
		}
	}
	if f.flight.stalled {
		f.flight.stalled = false
		go f.writeFrame(f.flight.frame)
	}
}

// flightError returns the error of the frame that flies, if it cannot be written.
func (f *frames) flightError() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.flight.broken
}

// holdFlights keeps frames from being written.
func (f *frames) holdFlights() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.held = true
}

// releaseFlights lets frames be written again.
func (f *frames) releaseFlights() {
	f.mu.Lock()
	f.held = false
	one := f.takeWhole()
	f.mu.Unlock()
	if one != nil {
		go f.writeFrame(one)
	}
}

// waitForFlight waits until no frame flies, unless the frame waits for the writer. It reports whether all frames are filled,
// and no open frame may fly.
func (f *frames) waitForFlight() bool {
	for {
		f.mu.Lock()
		changed, flies, over := f.changed, f.flight.frame != nil, f.flight.over()
		done := !flies && len(f.backlog.frames) == 0 && (f.held || len(f.open) == 0)
		f.mu.Unlock()
		if over {
			return done
		}
		<-changed
	}
}

// waitUntilFilled returns when the frames that were durable at the call are filled, or the log cannot be written.
func (f *frames) waitUntilFilled(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for until := f.backlog.landed; f.backlog.filled < until; f.mu.Lock() {
		if f.failed != nil && f.journal == nil {
			return fmt.Errorf("%w: %w", segment.ErrUnavailable, f.failed)
		}
		changed := f.changed
		f.mu.Unlock()
		f.wakeWriter()
		select {
		case <-changed:
		case <-ctx.Done():
			f.mu.Lock()
			return fmt.Errorf("%w: %w", segment.ErrUnavailable, ctx.Err())
		}
	}
	return nil
}

// openWith lets calls join again, and writes their frames into a journal.
func (f *frames) openWith(j *journal.Journal) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.journal, f.failed = j, nil
	if f.closed {
		f.failed = ErrClosed
	}
}

// rekey authenticates all later frames with another key. It is called within [writer.runHeld]: all is filled then.
func (f *frames) rekey(key journal.Key) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.journal.Rekey(key)
}

// eraseJournal overwrites filled frames, while no frame flies and no frame is left to fill.
func (f *frames) eraseJournal() error {
	f.mu.Lock()
	j := f.journal
	f.mu.Unlock()
	return j.Erase()
}

// refuseCalls ends waiting calls with an error, and lets no call join until openWith. Durable frames stay to be filled: the
// journal that is closed here has them, too.
func (f *frames) refuseCalls(err error) {
	f.mu.Lock()
	if f.failed = err; f.closed {
		f.failed = ErrClosed
	}
	for !f.flight.over() {
		changed := f.changed
		f.mu.Unlock()
		<-changed
		f.mu.Lock()
	}
	refused := f.open
	if f.flight.frame != nil {
		refused = slices.Insert(refused, 0, f.flight.frame)
	}
	j := f.journal
	f.open, f.flight, f.journal = nil, flight{}, nil
	f.wakeWaiting()
	f.mu.Unlock()
	if j != nil {
		_ = j.Close() // nothing is written to it any more
	}
	for _, one := range refused {
		f.answerFrame(one, fmt.Errorf("%w: %w", segment.ErrUnavailable, err))
	}
}

// closeToCalls lets no further call join. Calls that have joined are written.
func (f *frames) closeToCalls() {
	f.mu.Lock()
	f.closed = true
	if f.failed == nil {
		f.failed = ErrClosed
	}
	f.mu.Unlock()
}

// addRecovered adds frames that were read from a journal to the frames to be filled.
func (f *frames) addRecovered(some []*frame) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.backlog.add(some...)
}

// durableUpTo returns the frames to fill whose number is at most number.
func (f *frames) durableUpTo(number uint64) []*frame {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for n < len(f.backlog.frames) && f.backlog.frames[n].number <= number {
		n++
	}
	return f.backlog.frames[:n:n]
}

// addToStatus counts the records that are durable and not filled, and the calls that wait to be durable. size returns how many
// records readers see.
func (f *frames) addToStatus(size func() uint64, s *Status) {
	now := f.now()
	f.mu.Lock()
	defer f.mu.Unlock()
	s.Unfilled, s.Queued, s.Size = f.backlog.records, f.waitingCalls(), size()+uint64(f.backlog.records)
	if one := f.flight.frame; one != nil {
		s.Queued += len(one.calls)
	}
	if len(f.backlog.frames) > 0 {
		s.Behind = max(0, now.Sub(f.backlog.frames[0].time))
	}
}

// appendToFrame appends the bytes of a call in a frame of the journal.
func (c *call) appendToFrame(b []byte, at time.Time) []byte {
	j := journal.Call{Time: at, Payer: c.payer, Weight: c.weight, Records: make([]journal.Record, len(c.entries))}
	for i := range c.entries {
		p := &c.entries[i]
		j.Records[i] = journal.Record{ID: p.id, Body: p.rest()}
	}
	return journal.AppendCall(b, &j)
}

// startJournal makes a journal, and names it in the active segment in the transaction o, before anything is
// written to the journal. All frames of an earlier journal are filled by then, and it counts no more.
func (w *writer) startJournal(o transaction) error {
	options := w.options.Journal
	options.Key = w.key.FramesKey
	j, err := journal.Create(w.journalDir(), options)
	if err != nil {
		return err
	}
	o.journal = &segment.JournalMark{ID: j.ID()}
	if err := w.transact(o); err != nil {
		_ = j.Close()
		return err
	}
	w.frames.openWith(j)
	return nil
}

// eraseJournal overwrites the whole journal. It is called within [writer.runHeld]: all is filled then, and nothing is written
// meanwhile.
func (w *writer) eraseJournal() error {
	if err := w.frames.eraseJournal(); err != nil {
		return w.fail(fmt.Errorf("the journal: %w", err))
	}
	return nil
}

func (w *writer) journalDir() string { return filepath.Join(w.data, format.LogDir) }
