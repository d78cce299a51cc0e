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
	"policy-service/pdp/internal/plainfile"
)

// sealedMode is the mode of a segment's file once nobody writes to it.
const sealedMode = 0o400

// allocSize is by how much the file of a segment grows. Each growth costs a sync.
const allocSize = 4 << 20

// writeOptions returns the options of a segment that is written to. Its memory map is large from
// the start, because bbolt waits for all readers before it enlarges a map.
func (w *writer) writeOptions() bbolt.Options {
	return bbolt.Options{
		Timeout:         max(w.options.LockTimeout, time.Millisecond),
		InitialMmapSize: int(2 * w.options.SegmentBytes),
	}
}

// rotateIfDue seals the active segment at its size and at its age. A segment with nothing but the log's
// records of its own segments is never sealed: silence needs no segments, and if a new segment
// is as large as a segment may be, sealing it would have no end.
func (w *writer) rotateIfDue() {
	if w.failed != nil || time.Since(w.tried) < w.options.RetryEvery {
		return
	}
	s, records := w.active, w.tail.Edge.Size-w.active.First
	if records < 2 || s.Size < w.options.SegmentBytes && w.options.Now().Sub(s.opened) < w.options.SegmentAge {
		return
	}
	if idle, err := onlyUpkeep(w.reader, s.First, records); err == nil && !idle {
		_ = w.rotate()
	}
}

// Rotate seals the active segment, so that other processes can read all records up to now, and the
// segment can be rewritten. If writing fails meanwhile, Rotate
// returns [segment.ErrUnavailable], and the segment may be sealed or not.
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
	return old.TakeFromWriter() // if that is not yet done
}

// rotate seals the active segment and begins the next. If the next one cannot be made, as on a full disk, the active one stays.
// Frames are written while it is made.
func (w *writer) rotate() error {
	old := w.active
	next, err := w.prepareSegment(old.Number + 1)
	if err != nil {
		w.tried = time.Now()
		return fmt.Errorf("beginning a segment: %w", err)
	}
	// Frames that became durable meanwhile are filled now, and then the frames of that time: decisions wait while frames are held.
	err = w.commitPending(nil, false)
	if err == nil {
		err = w.commitPending(nil, false)
	}
	if err == nil {
		err = w.whileHeld(func() error { return w.sealActive(next) })
	}
	if err != nil {
		_ = next.Close()
		boltfile.DropCache(next.Path) // a failed transaction may have left what never reached the disk
		return err
	}
	_ = os.Chmod(old.Path, sealedMode)       // not needed for safety: hashes and signatures protect the segment
	go func() { _ = old.TakeFromWriter() }() // unmapping takes milliseconds, and readers may be at it
	w.options.On.Rotate()
	return nil
}

// maxTails is how many unsigned tails a new segment names.
const maxTails = 100

// sealActive ends the active segment, and makes next the active one.
func (w *writer) sealActive(next *segment.File) error {
	// A sealed segment has all that was answered, and no journal counts for it. Nothing is answered until the
	// next segment names the journal again. If that fails, a new journal is made.
	on := w.tail.journal
	w.options.On.Step(StepSeal)
	if err := w.transact(transaction{checkpoint: w.tail.Edge.Size > w.tail.Checkpointed, journal: &segment.JournalMark{}}); err != nil {
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

// beginSegment makes a prepared segment the active one, by writing its first record.
func (w *writer) beginSegment(s *segment.File, event string, about map[string]any, on *segment.JournalMark) error {
	next := &active{File: s}
	if err := w.transact(transaction{calls: []*call{w.ownRecord("", event, about)}, begin: next, journal: on}); err != nil {
		return err
	}
	w.reader.AddFile(s)
	w.active, next.opened = next, w.options.Now()
	w.makeVisible(w.tail.Edge.Size)
	return nil
}

// prepareSegment makes an empty segment. The file gets its name last, because a file with the name of a
// segment counts as one.
func (w *writer) prepareSegment(number uint64) (*segment.File, error) {
	s := segment.NewFile(w.data, number)
	draft := filepath.Join(filepath.Dir(s.Path), fmt.Sprintf(".prepared-%08d", number))
	_ = os.Remove(draft)
	db, err := segment.OpenFile(draft, boltfile.ToWrite, w.writeOptions())
	if err != nil {
		return nil, err
	}
	db.AllocSize = allocSize
	s.GiveToWriter(db)
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
		err = plainfile.Rename(draft, s.Path)
		w.options.On.Step(StepPrepared)
	}
	if err != nil {
		_ = s.Close()
		return nil, errors.Join(err, os.Remove(draft))
	}
	return s, nil
}
