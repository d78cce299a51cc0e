package decisionlog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/journal"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/internal/plainfile"
)

// heldFile is a file of a journal. While gate is held, its syncs wait.
type heldFile struct {
	*os.File
	gate *sync.RWMutex
}

func (f heldFile) Sync() error {
	f.gate.RLock()
	defer f.gate.RUnlock()
	return f.File.Sync()
}

// holding are options of a journal whose syncs wait while gate is held.
func holding(gate *sync.RWMutex) journal.Options {
	return journal.Options{OpenFile: func(name string, flag int, mode fs.FileMode) (journal.File, error) {
		f, err := plainfile.OpenFile(name, flag, mode)
		return heldFile{f, gate}, err
	}}
}

// queued waits until so many calls wait.
func queued(t *testing.T, l *Log, calls int) {
	t.Helper()
	until(t, fmt.Sprintf("%d calls wait", calls), func() bool { return l.Status().Queued == calls })
}

// until waits until something holds.
func until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for patience := time.After(time.Minute); !holds(); {
		select {
		case <-tick.C:
		case <-patience:
			t.Fatalf("in a minute it is not so: %s", what)
		}
	}
}

// Those who come while a frame flies share the next one.
func TestCallsShareAFrame(t *testing.T) {
	t.Parallel()
	const many = 20
	var gate sync.RWMutex
	var mu sync.Mutex
	var frames []int
	l := mustOpen(t, memory(t), Options{Journal: holding(&gate), On: Hooks{Commit: func(c Commit) {
		mu.Lock()
		defer mu.Unlock()
		if c.Calls > 0 { // else it is a checkpoint
			frames = append(frames, c.Calls)
		}
	}}})
	mu.Lock()
	frames = nil // the record of the beginning
	mu.Unlock()
	gate.Lock()
	var calls sync.WaitGroup
	ask := func(id string) {
		calls.Go(func() {
			if err := l.Append(t.Context(), []record.Entry{entry(id)}); err != nil {
				t.Error(err)
			}
		})
	}
	ask("alone")
	queued(t, l, 1)
	for i := range many {
		ask(fmt.Sprint("together-", i))
	}
	queued(t, l, 1+many)
	gate.Unlock()
	calls.Wait()
	mu.Lock()
	defer mu.Unlock()
	if fmt.Sprint(frames) != fmt.Sprint([]int{1, many}) {
		t.Errorf("frames of %d calls", frames)
	}
}

// Whoever does not wait any more has no answer. The record may be there, and is there once.
func TestACallerDoesNotWaitForTheFrame(t *testing.T) {
	t.Parallel()
	var gate sync.RWMutex
	l := mustOpen(t, memory(t), Options{Journal: holding(&gate)})
	gate.Lock()
	first := make(chan error, 1)
	go func() { first <- l.Append(t.Context(), []record.Entry{entry("flies")}) }()
	queued(t, l, 1)
	ctx, cancel := context.WithCancel(t.Context())
	second := make(chan error, 1)
	go func() { second <- l.Append(ctx, []record.Entry{entry("waits")}) }()
	queued(t, l, 2)
	cancel()
	if err := <-second; !errors.Is(err, segment.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
	gate.Unlock()
	if err := <-first; err != nil {
		t.Error(err)
	}
	queued(t, l, 0)
	must(t, l.Flush(t.Context()))
	if got := recordsWith(t, l.Reader, `"id":"waits"`); got != 1 {
		t.Errorf("%d records of the call", got)
	}
}

// recordsWith counts the records that have some text.
func recordsWith(t *testing.T, r *segment.Reader, text string) (n int) {
	t.Helper()
	for record, err := range r.Records(t.Context(), 0, r.Size()) {
		must(t, err)
		n += strings.Count(string(record.Line), text)
	}
	return n
}

// A journal that is full waits for the segment, and goes on, also if nobody asks for anything else.
func TestAFullJournalGoesOn(t *testing.T) {
	t.Parallel()
	const callers, each = 8, 60
	var grown atomic.Int32
	l := mustOpen(t, memory(t), Options{Journal: journal.Options{Size: journal.MinSize, Step: func(step string) {
		if step == journal.StepSwitch {
			grown.Add(1)
		}
	}}})
	text := strings.Repeat("x", 20<<10)
	var calls sync.WaitGroup
	for caller := range callers {
		calls.Go(func() {
			for i := range each {
				e := entry(fmt.Sprintf("%d-%d", caller, i))
				e.Request.Context = []byte(`{"text":"` + text + `"}`)
				if err := l.Append(t.Context(), []record.Entry{e}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	calls.Wait()
	for caller := range callers {
		for i := range each {
			if _, err := l.ByID(fmt.Sprintf("%d-%d", caller, i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if grown.Load() < 10 {
		t.Errorf("the journal was full %d times", grown.Load())
	}
}

// What goes straight to the segment comes there, also if frames land as fast as the segment can be filled with them.
func TestFramesLeaveTimeForOthers(t *testing.T) {
	t.Parallel()
	const enough, size = 6, 32 << 20
	text := strings.Repeat("x", 24<<10)
	const most = 2 * (commitBytes/(24<<10) + 10) // records, and so more than one transaction takes
	var l *Log
	var number, fills, said atomic.Int32
	land := func() {
		var calls sync.WaitGroup
		left := make(chan int, most)
		for i := range most - l.Status().Unfilled {
			left <- i
		}
		close(left)
		for range 16 {
			calls.Go(func() {
				for range left {
					e := entry(fmt.Sprint(number.Add(1)))
					e.Request.Context = []byte(`{"text":"` + text + `"}`)
					if err := l.Append(t.Context(), []record.Entry{e}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		calls.Wait()
	}
	occupied, occupy := make(chan struct{}), make(chan struct{})
	var busy, counting atomic.Bool
	l = mustOpen(t, memory(t), Options{SegmentBytes: 1 << 30, Journal: journal.Options{Size: size}, On: Hooks{
		Step: func(step string) {
			switch {
			case step == StepCommit && busy.CompareAndSwap(true, false):
				close(occupied)
				<-occupy
			case step == StepFill && counting.Load() && len(l.writer.queue.calls) == 0 && fills.Add(1) < enough:
				land()
			}
		},
		Commit: func(c Commit) {
			if counting.Load() && c.Records == 1 && c.Bytes < 1<<10 && said.Add(1) == 2 {
				counting.Store(false) // both are there
			}
		},
	}})
	answered := make(chan error, 2)
	say := func(id string) {
		go func() {
			answered <- l.Append(t.Context(), []record.Entry{{ID: id, Kind: format.KindAdmin, Event: "said"}})
		}()
	}
	busy.Store(true)
	say("first")
	<-occupied
	land()
	say("second")
	for len(l.writer.queue.calls) == 0 {
		runtime.Gosched()
	}
	select {
	case <-l.writer.frames.wake: // so that the writer takes the call first
	default:
	}
	counting.Store(true)
	close(occupy)
	for range 2 {
		if err := <-answered; err != nil {
			t.Error(err)
		}
	}
	if n := fills.Load(); n >= enough {
		t.Errorf("it came after %d transactions with frames that landed after it", n)
	}
}

// A log that was closed, or cannot be written, says so to whoever asks what is on record, and lets nobody wait.
func TestNobodyWaitsForALogThatEnded(t *testing.T) {
	t.Parallel()
	failing := errors.New("the disk is gone")
	var broken atomic.Bool
	o := Options{Journal: journal.Options{OpenFile: func(name string, flag int, mode fs.FileMode) (journal.File, error) {
		f, err := plainfile.OpenFile(name, flag, mode)
		return brokenFile{f, &broken, failing}, err
	}}}
	l := mustOpen(t, memory(t), o)
	mustAppend(t, l, entry("before"))
	broken.Store(true)
	if err := l.Append(t.Context(), []record.Entry{entry("refused")}); !errors.Is(err, segment.ErrUnavailable) || !errors.Is(err, failing) {
		t.Errorf("got %v", err)
	}
	if _, err := l.ByID("before"); err != nil && !errors.Is(err, segment.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
	if err := l.Close(); !errors.Is(err, failing) {
		t.Errorf("got %v", err)
	}
	if _, err := l.ByID("before"); err == nil {
		t.Error("a closed log was read")
	}
	if err := l.Append(t.Context(), []record.Entry{entry("late")}); !errors.Is(err, ErrClosed) {
		t.Errorf("got %v", err)
	}
}

// brokenFile fails to write, from some moment on.
type brokenFile struct {
	*os.File
	broken *atomic.Bool
	err    error
}

func (f brokenFile) WriteAt(b []byte, at int64) (int, error) {
	if f.broken.Load() {
		return 0, f.err
	}
	return f.File.WriteAt(b, at)
}

// TestABacklogIsFilledBeforeAFileIsFull: the file of the journal that is full is free again only when the segment has its
// frames, so the writer begins earlier.
func TestABacklogIsFilledBeforeAFileIsFull(t *testing.T) {
	t.Parallel()
	l := mustOpen(t, memory(t), Options{})
	f := l.writer.frames
	err := l.writer.submitCall(t.Context(), &call{do: func() error { // which keeps the writer from filling
		big := entryOf("", true)
		big.RequestID = strings.Repeat("x", callBytes-2000)
		for n := range 3 * journal.DefaultSize / 4 / callBytes {
			if err := l.Append(t.Context(), []record.Entry{big}); err != nil {
				return err
			}
			if n == 0 {
				f.backlog.due.Stop() // it wakes the writer, too
				select {
				case <-f.wake:
				default:
				}
			}
		}
		if len(f.wake) == 0 {
			t.Errorf("%d bytes wait, and the writer sleeps", f.backlog.bytes)
		}
		return nil
	}})
	must(t, err)
}

// TestAFullFileIsFilled: when a file of the journal is full, the segment is filled at once, so that the file can be used
// again before the other one is full, too.
func TestAFullFileIsFilled(t *testing.T) {
	t.Parallel()
	l := mustOpen(t, memory(t), Options{
		Journal:     journal.Options{Size: journal.MinSize},
		Checkpoints: Checkpoints{Every: time.Hour, Idle: time.Hour},
	})
	large := entry("")
	large.Request.Context = []byte(`"` + strings.Repeat("x", 20<<10) + `"`)
	had := l.Size()
	for n := range journal.MinSize / (20 << 10) {
		large.ID = fmt.Sprint("id", n)
		must(t, l.Append(t.Context(), []record.Entry{large}))
		f := l.writer.frames
		f.mu.Lock()
		f.backlog.due.Stop() // so that nothing is filled because it is time
		f.mu.Unlock()
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := l.Beyond(ctx, had); err != nil {
		t.Error("nothing was filled: ", err)
	}
}
