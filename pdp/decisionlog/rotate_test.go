package decisionlog

import (
	"context"
	"os"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"policy-service/pdp/boltfile"
)

func thousand() []Entry {
	entries := make([]Entry, 1000)
	for i := range entries {
		entries[i] = entryOf("", true)
	}
	return entries
}

// callsOf are those of one transaction.
func (l *Log) callsOf(t *testing.T, entries ...Entry) []*call {
	t.Helper()
	c := &call{at: l.options.Now()}
	for _, e := range entries {
		e.ID = l.options.NewID()
		p, err := prepare(e, l.kinds)
		if err != nil {
			t.Fatal(err)
		}
		c.entries = append(c.entries, p)
	}
	return []*call{c}
}

// While the writer is kept nothing is hashed but what the last commits wrote, and
// next to nothing else is read: not what was written while the rest was hashed,
// nor what the file has in reserve.
func TestLittleIsHashedWhileTheWriterIsKept(t *testing.T) {
	l := mustOpen(t, t.TempDir(), Options{})
	for range 20 {
		mustAppend(t, l, thousand()...)
	}
	mustAppend(t, l, entryOf("", true)) // writes to fewer pages than the commit before freed: some stay free
	err := l.order(t.Context(), func() error {
		s := l.w.active
		l.w.ahead = startHashing(s)
		<-l.w.ahead.done
		for range 5 { // as if beside the first round
			for _, entries := range [][]Entry{thousand(), thousand()[:1]} {
				if err := l.transact(l.callsOf(t, entries...), order{}); err != nil {
					return err
				}
			}
		}
		if !l.w.ahead.again() {
			t.Error("there is one round only")
		}
		<-l.w.ahead.done
		if err := l.transact(l.callsOf(t, entryOf("", true)), order{}); err != nil {
			return err
		}
		if l.w.ahead.again() {
			t.Error("the rounds have no end")
		}
		before := append([]block(nil), l.w.ahead.blocks...)
		digest, size, err := l.w.ahead.finish(s.path)
		if err != nil {
			return err
		}
		f, err := os.Open(s.path)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		if want, bytes, err := FileDigest(f); err != nil || digest != want || size != bytes {
			t.Errorf("%s of %d bytes, want %s of %d, %v", digest, size, want, bytes, err)
		}
		read, hashed := 0, 0
		for i, b := range l.w.ahead.blocks {
			if i >= len(before) || !before[i].done {
				read++
			}
			if i >= len(before) || before[i].sum != b.sum {
				hashed++
			}
		}
		t.Logf("of %d blocks %d were read and %d hashed", len(l.w.ahead.blocks), read, hashed)
		reserve := int(allocSize / DigestBlock)
		if hashed < 1 || hashed > 8 || read > reserve+16 || len(before) < 2*reserve {
			t.Errorf("of %d blocks %d were read and %d hashed", len(l.w.ahead.blocks), read, hashed)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A segment that is written to while it is hashed gets the digest that its file has.
func TestDigestsUnderLoad(t *testing.T) {
	k := keepLog(t)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		for ctx.Err() == nil {
			if _, err := k.log.Append(t.Context(), thousand()); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for range 10 {
		k.ok(k.log.Rotate(t.Context()))
	}
	stop()
	k.ok(<-done)
	k.ok(k.log.Close())
	k.ok(JudgeDirectory(k.data))
}

// While the writer is kept there is one transaction, which costs two syncs: the
// checkpoint came with the commit before.
func TestOneCommitKeepsTheWriter(t *testing.T) {
	var commits int
	l := mustOpen(t, t.TempDir(), Options{OnCommit: func(Commit) { commits++ }})
	mustAppend(t, l, thousand()...)
	err := l.order(t.Context(), func() error {
		l.w.ahead = startHashing(l.w.active)
		<-l.w.ahead.done
		l.w.ahead.again()
		if err := l.transact(l.callsOf(t, entryOf("", true)), order{}); err != nil {
			return err
		}
		<-l.w.ahead.done
		commits = 0
		err := l.rotate()
		if commits != 1 { // counted here: the writer goes on, and signs in silence too
			t.Errorf("%d commits, want 1", commits)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// The last commits of a segment are small: what the very last one writes is
// hashed while the writer is kept.
func TestLastCommitsAreSmall(t *testing.T) {
	l := mustOpen(t, t.TempDir(), Options{})
	gathered := func() (n int) {
		big := &call{size: commitBytes / 16}
		for range 5 {
			l.queue <- big
		}
		n = len(l.gather(big))
		for len(l.queue) > 0 {
			<-l.queue
		}
		return n
	}
	err := l.order(t.Context(), func() error {
		if n := gathered(); n != 6 {
			t.Errorf("%d calls share a commit, want 6", n)
		}
		l.w.ahead = startHashing(l.w.active)
		<-l.w.ahead.done
		if n := gathered(); n != 2 {
			t.Errorf("%d calls share a commit before a segment is sealed, want 2", n)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Rotation waits for nobody who reads the segment, but who rotates does: then
// others can open it.
func TestRotationWaitsForNoReader(t *testing.T) {
	l := mustOpen(t, t.TempDir(), Options{})
	mustAppend(t, l, entryOf("", true))
	s, reading, release := l.all()[0], make(chan struct{}), make(chan struct{})
	read := make(chan error, 1)
	go func() {
		read <- s.view(func(*bbolt.Tx) error {
			close(reading)
			<-release
			return nil
		})
	}()
	<-reading
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := l.order(ctx, l.rotate)
	close(release)
	if err := <-read; err != nil {
		t.Error(err)
	}
	if err != nil {
		t.Fatal("the writer waits for a reader:", err)
	}
	mustAppend(t, l, entryOf("", true))
	if err := l.Rotate(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, s := range l.all()[1:2] {
		db, err := openFile(s.path, boltfile.ToRead, bbolt.Options{Timeout: time.Nanosecond})
		if err != nil {
			t.Fatal("after Rotate:", err)
		}
		_ = db.Close()
	}
}
