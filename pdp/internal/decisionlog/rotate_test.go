package decisionlog

import (
	"context"
	"errors"
	"os"
	"runtime"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"policy-service/pdp/internal/boltfile"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/segment"
)

func thousand() []record.Entry {
	entries := make([]record.Entry, 1000)
	for i := range entries {
		entries[i] = entryOf("", true)
	}
	return entries
}

// Segments can be sealed while others write.
func TestRotationUnderLoad(t *testing.T) {
	t.Parallel()
	k := keepLog(t)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		for ctx.Err() == nil {
			if err := k.log.Append(t.Context(), thousand()); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for range 4 {
		k.ok(k.log.Rotate(t.Context()))
	}
	stop()
	k.ok(<-done)
	k.ok(k.log.Close())
	k.ok(JudgeDirectory(k.data))
}

// While the writer is kept there are two transactions, which cost two syncs each: the
// checkpoint that ends a segment, and the record that begins the next.
func TestTwoCommitsKeepTheWriter(t *testing.T) {
	t.Parallel()
	var commits int
	l := mustOpen(t, memory(t), Options{On: Hooks{Commit: func(Commit) { commits++ }}})
	mustAppend(t, l, thousand()...)
	mustAppend(t, l, entryOf("", true))
	err := l.writer.runHeld(t.Context(), func() error {
		commits = 0
		err := l.writer.rotate()
		if commits != 2 { // counted here: the writer goes on, and signs in silence too
			t.Errorf("%d commits, want 2", commits)
		}
		return err
	})
	must(t, err)
}

// TestRotationFillsBeforeItHolds: decisions come while the next segment is made. If frames were held while the segment is
// filled with them, all others would wait for that.
func TestRotationFillsBeforeItHolds(t *testing.T) {
	t.Parallel()
	var l *Log
	var rotating bool
	var filled, held int
	step := func(step string) {
		switch {
		case !rotating: // the rest of the test comes after Open
		case step == StepPrepared:
			if err := l.Append(t.Context(), []record.Entry{entryOf("while-it-is-made", true)}); err != nil {
				t.Error(err)
			}
		case step == StepFill:
			l.writer.frames.mu.Lock()
			defer l.writer.frames.mu.Unlock()
			if filled++; l.writer.frames.held {
				held++
			}
		}
	}
	l = mustOpen(t, memory(t), Options{On: Hooks{Step: step}})
	err := l.writer.submitCall(t.Context(), &call{do: func() error {
		rotating = true
		defer func() { rotating = false }()
		return l.writer.rotate()
	}})
	if err != nil || filled == 0 || held > 0 {
		t.Errorf("%d times filled, %d of them while frames were held: %v", filled, held, err)
	}
	if s := l.Segments(); len(s) != 2 || sequenceOf(t, l, "while-it-is-made") >= s[1].First {
		t.Errorf("the record is not in the segment that was sealed: %+v", s)
	}
}

// Rotation waits for nobody who reads the segment, but who rotates does: then
// others can open it.
func TestRotationWaitsForNoReader(t *testing.T) {
	l := mustOpen(t, memory(t), Options{})
	mustAppend(t, l, entryOf("", true))
	s, reading, release := l.SegmentFiles()[0], make(chan struct{}), make(chan struct{})
	read := make(chan error, 1)
	go func() {
		read <- s.View(func(*bbolt.Tx) error {
			close(reading)
			<-release
			return nil
		})
	}()
	<-reading
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := l.writer.runHeld(ctx, l.writer.rotate)
	close(release)
	if err := <-read; err != nil {
		t.Error(err)
	}
	if err != nil {
		t.Fatal("the writer waits for a reader:", err)
	}
	mustAppend(t, l, entryOf("", true))
	must(t, l.Rotate(t.Context()))
	for _, s := range l.SegmentFiles()[1:2] {
		db, err := segment.OpenFile(s.Path, boltfile.ToRead, bbolt.Options{Timeout: time.Nanosecond})
		if err != nil {
			t.Fatal("after Rotate:", err)
		}
		_ = db.Close()
	}
}

// A segment that is full of nothing but what the log says of its segments is not sealed: the next one would be as full.
func TestSmallSegmentsAreNotSealedForEver(t *testing.T) {
	t.Parallel()
	commits := make(chan struct{})
	l := mustOpen(t, memory(t), Options{
		SegmentBytes: 1,
		Checkpoints:  Checkpoints{Every: time.Millisecond, Idle: time.Millisecond},
		RetryEvery:   time.Millisecond,
		On: Hooks{Commit: func(Commit) {
			select {
			case commits <- struct{}{}:
			default:
			}
		}},
	})
	for range 5 {
		mustAppend(t, l, entryOf("", true))
	}
	for range 30 { // checkpoints
		<-commits
	}
	if n := len(l.Segments()); n < 2 || n > 6 {
		t.Errorf("5 appends made %d segments", n)
	}
}

// TestRotationWithFramesPending: what was answered before a rotation is in the segment that is sealed. A call that comes
// while no journal counts is answered once the next segment says which one does.
func TestRotationWithFramesPending(t *testing.T) {
	t.Parallel()
	k, killed := keepLog(t), ""
	k.hooks.hold()
	for _, id := range []string{"a", "b", "c"} {
		k.ok(k.pend(id+".0", id+".1"))
	}
	standing := func() (s Status) {
		k.log.writer.frames.addToStatus(k.log.Size, &s)
		return s
	}
	if n := standing().Unfilled; n != 6 {
		t.Fatalf("%d records are pending", n)
	}
	rotated, late := make(chan error), make(chan error, 1)
	k.hooks.set(func(step string) {
		if step != StepSealed {
			return
		}
		go func() {
			late <- k.log.Append(t.Context(), []record.Entry{entryOf("late.0", true), entryOf("late.1", true)})
		}()
		for standing().Queued == 0 {
			runtime.Gosched()
		}
		killed = asKilled(t, k.data)
		if len(late) > 0 {
			t.Error("it was answered while no journal counted")
		}
	})
	go func() { rotated <- k.log.Rotate(t.Context()) }()
	k.hooks.goOn()
	k.ok(errors.Join(<-rotated, <-late))
	sealed := k.log.Segments()[0]
	for id, want := range map[string]bool{"a.0": true, "b.0": true, "c.1": true, "late.0": false} {
		if n := sequenceOf(t, k.log, id); n < sealed.First+sealed.Records != want {
			t.Errorf("%s is record %d, and the sealed segment has %d", id, n, sealed.Records)
		}
	}
	k.ok(k.log.Close())
	k.onRecord(verify(t, k.data), k.answered)
	k.ok(mustOpen(t, killed, Options{}).Close())
	k.answered["late.0"], k.answered["late.1"] = false, false
	k.onRecord(verify(t, killed), k.answered)
}

// TestSealedSegmentsAreReadOnlyAgain: a rotation that ended before it set the mode of the sealed segment is made good when the
// log is opened, and when it is opened again after a failure. Else verify takes the segment for the active one.
func TestSealedSegmentsAreReadOnlyAgain(t *testing.T) {
	t.Parallel()
	k := keepLog(t)
	k.append("a-1")
	k.ok(k.log.Rotate(t.Context()))
	path := segment.FilePath(k.data, 1)
	readOnly := func(want os.FileMode) {
		t.Helper()
		info, err := os.Stat(path)
		k.ok(err)
		if mode := info.Mode().Perm(); mode != want {
			t.Errorf("the mode is %o, not %o", mode, want)
		}
		k.ok(JudgeDirectory(k.data)) // beside the open log
	}
	k.ok(k.log.Close())
	k.ok(os.Chmod(path, 0o600))
	k.open()
	readOnly(0o400)

	k.ok(os.Chmod(path, 0o640)) // by an operator, whose auditors read it
	k.ok(k.log.writer.runHeld(t.Context(), func() error { _ = k.log.writer.fail(errors.New("the disk failed")); return nil }))
	k.disk.resumes()
	readOnly(0o440)
}
