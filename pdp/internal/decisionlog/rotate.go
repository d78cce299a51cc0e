package decisionlog

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"

	"policy-service/pdp/internal/boltfile"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/segment"
)

// sealedMode is the mode of a segment's file once nobody writes to it.
const sealedMode = 0o400

// allocSize is by how much the file of a segment grows; each time costs a sync.
const allocSize = 4 << 20

// writeOptions are the options of a segment that is written to. Its memory map is large from
// the start: to enlarge it bbolt waits for all readers.
func (w *writer) writeOptions() bbolt.Options {
	return bbolt.Options{
		Timeout:         max(w.options.LockTimeout, time.Millisecond),
		InitialMmapSize: int(2 * w.options.SegmentBytes),
	}
}

// rotateIfDue seals the active segment at its size and at its age.
func (w *writer) rotateIfDue() {
	if w.failed == nil && w.rotationDue(w.active) {
		_ = w.rotate()
	}
}

// rotationDue reports whether a segment is to be sealed. One that holds nothing but what the
// log says of its own segments never is: silence needs no segments, and if a new segment
// is as large as a segment may be, sealing it would have no end.
func (w *writer) rotationDue(s *active) bool {
	size := w.tail.Edge.Size
	if size-s.First < 2 || time.Since(w.tried) < w.options.RetryEvery {
		return false
	}
	if s.Size < w.options.SegmentBytes && w.options.Now().Sub(s.opened) < w.options.SegmentAge {
		return false
	}
	idle, err := onlyUpkeep(w.reader, s.First, size-s.First)
	return err == nil && !idle
}

// Rotate seals the active segment, so that all that is on record now can be read by
// others, and the segment can be rewritten. If writing fails meanwhile it
// returns [segment.ErrUnavailable]; then the segment may be sealed.
func (l *Log) Rotate(ctx context.Context) error {
	var old *segment.File
	err := l.writer.submitCall(ctx, &call{do: func() error {
		if err := l.writer.unavailable(); err != nil {
			return err
		}
		old = l.writer.active.File
		return l.writer.rotate()
	}})
	if err != nil {
		return err // old is the writer's still
	}
	return old.Retire() // if that is not yet done
}

// rotate seals the active segment and begins the next. If the next cannot be made, as on a full disk, the active one goes
// on. Frames fly while it is made.
func (w *writer) rotate() error {
	old := w.active
	next, err := w.prepareSegment(old.Number + 1)
	if err != nil {
		w.tried = time.Now()
		return fmt.Errorf("beginning a segment: %w", err)
	}
	// All that landed meanwhile is filled now, and again those that land during that: decisions wait while frames are held.
	err = w.commitPending(nil, false)
	if err == nil {
		err = w.commitPending(nil, false)
	}
	if err == nil {
		err = w.whileHeld(func() error { return w.sealActive(next) })
	}
	if err != nil {
		_ = next.Close()
		return err
	}
	_ = os.Chmod(old.Path, sealedMode) // a courtesy: hashes and signatures are what counts
	go func() { _ = old.Retire() }()   // unmapping takes milliseconds, and readers may be at it
	w.options.On.Rotate()
	return nil
}

// maxTails is how many a new segment names.
const maxTails = 100

// sealActive ends a segment, and begins the next.
func (w *writer) sealActive(next *segment.File) error {
	// What is sealed has all that was answered, and no journal counts for it. Nothing is answered until the
	// next segment names the journal again: if that fails, there is a new one.
	on := w.tail.journal
	w.options.On.Step(StepSeal)
	if err := w.transact(transaction{checkpoint: w.tail.Edge.Size > w.tail.Checkpointed, journal: &segment.Journaled{}}); err != nil {
		return w.fail(err)
	}
	w.options.On.Step(StepSealed)
	about := map[string]any{"segment": next.Number}
	if len(w.tails) > 0 {
		about["unsigned_tails"] = w.tails[:min(len(w.tails), maxTails)]
	}
	if err := w.beginSegment(next, format.EventSegment, about, &on); err != nil {
		return w.fail(err)
	}
	w.options.On.Step(StepBegun)
	return nil
}

// beginSegment makes a prepared segment the active one, by its first record.
func (w *writer) beginSegment(s *segment.File, event string, about map[string]any, on *segment.Journaled) error {
	next := &active{File: s}
	if err := w.transact(transaction{calls: []*call{w.ownRecord("", event, about)}, begin: next, journal: on}); err != nil {
		return err
	}
	w.reader.Add(s)
	w.active, next.opened = next, w.options.Now()
	w.makeVisible(w.tail.Edge.Size)
	return nil
}

// prepareSegment makes an empty segment. It gets its name last: a file with the name of a
// segment is one.
func (w *writer) prepareSegment(number uint64) (*segment.File, error) {
	s := segment.NewFile(w.data, number)
	draft := filepath.Join(filepath.Dir(s.Path), fmt.Sprintf(".prepared-%08d", number))
	_ = os.Remove(draft)
	db, err := segment.OpenFile(draft, boltfile.ToWrite, w.writeOptions())
	if err != nil {
		return nil, err
	}
	db.AllocSize = allocSize
	s.Own(db)
	err = segment.Guard(func() error {
		return db.Update(func(tx *bbolt.Tx) error {
			for _, name := range []string{format.BucketMeta, format.BucketRecords, format.BucketHashes, format.BucketIDs, format.BucketCheckpoints} {
				if _, err := tx.CreateBucket([]byte(name)); err != nil {
					return err
				}
			}
			return nil
		})
	})
	if err == nil {
		w.options.On.Step(StepPrepare)
		err = segment.Rename(draft, s.Path)
		w.options.On.Step(StepPrepared)
	}
	if err != nil {
		_ = s.Close()
		return nil, errors.Join(err, os.Remove(draft))
	}
	return s, nil
}

func (w *writer) removePrepared() error {
	drafts, err := filepath.Glob(filepath.Join(w.data, format.LogDir, ".prepared-*"))
	for _, name := range drafts {
		err = errors.Join(err, os.Remove(name))
	}
	return err
}
