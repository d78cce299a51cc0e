package decisionlog

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"

	"policy-service/pdp/boltfile"
	"policy-service/pdp/plainfile"
)

// allocSize is by how much the file of a segment grows; each time costs a sync.
const allocSize = 4 << 20

// writing are the options of a segment that is written to. Its memory map is large from
// the start: to enlarge it bbolt waits for all readers.
func (w *writer) writing() bbolt.Options {
	return bbolt.Options{
		Timeout:         max(w.options.LockTimeout, time.Millisecond),
		InitialMmapSize: int(2 * w.options.SegmentBytes),
	}
}

// rotateIfDue looks after the size and the age of the active segment: at half its size the next
// one is prepared, and at its size it is sealed.
func (w *writer) rotateIfDue() {
	s := w.active
	if w.failed != nil || s == nil {
		return
	}
	if w.next != nil && w.next.failed() {
		w.next, w.tried = nil, time.Now()
	}
	if s.size >= w.options.SegmentBytes/2 && w.next == nil && time.Since(w.tried) > w.options.RetryEvery {
		w.next = w.prepareAside(s.number + 1)
	}
	if w.due(s) {
		if w.hold() == nil {
			_ = w.rotate()
		}
		w.frames.release()
	}
}

// due reports whether a segment is to be sealed. One that holds nothing but what the
// log says of its own segments never is: silence needs no segments, and if a new segment
// is as large as a segment may be, sealing it would have no end.
func (w *writer) due(s *segment) bool {
	size := w.tail.edge.size
	if size-s.first < 2 || time.Since(w.tried) < w.options.RetryEvery {
		return false
	}
	if s.size < w.options.SegmentBytes && w.options.Now().Sub(s.opened) < w.options.SegmentAge {
		return false
	}
	idle, err := w.reader.onlyUpkeep(s.first, size-s.first)
	return err == nil && !idle
}

// rotate seals the active segment and begins the next. If the next cannot be
// made, as on a full disk, the active one goes on.
func (w *writer) rotate() error {
	start, old := time.Now(), w.active
	next, err := w.takeNext()
	if err != nil {
		w.tried = time.Now()
		return fmt.Errorf("beginning a segment: %w", err)
	}
	if err := w.seal(next); err != nil {
		_ = next.close()
		return w.fail(err)
	}
	_ = os.Chmod(old.path, 0o400)    // a courtesy: hashes and signatures are what counts
	go func() { _ = old.retire() }() // unmapping takes milliseconds, and readers may be at it
	w.options.On.Rotate(old.number, time.Since(start))
	return nil
}

// retireSealed lets readers open a sealed segment, if that is not yet done.
func (r *Reader) retireSealed(number uint64) error {
	all := r.all()
	for i, s := range all {
		if s.number == number && i < len(all)-1 { // the last one is the writer's
			return s.retire()
		}
	}
	return nil
}

// seal ends a segment, and begins the next.
func (w *writer) seal(next *segment) error {
	// What is sealed has all that was answered, and no journal counts for it. Nothing is answered until the
	// next segment names the journal again: if that fails, there is a new one.
	on := w.tail.journal
	w.options.On.Step(StepSeal)
	if err := w.transact(order{checkpoint: w.tail.edge.size > w.tail.checkpointed, journal: &journaled{}}); err != nil {
		return err
	}
	w.options.On.Step(StepSealed)
	about := map[string]any{"segment": next.number}
	if len(w.tails) > 0 {
		about["unsigned_tails"] = w.tails[:min(len(w.tails), maxTails)]
	}
	if err := w.begin(next, EventSegment, about, &on); err != nil {
		return err
	}
	w.options.On.Step(StepBegun)
	return nil
}

// begin makes a prepared segment the active one, by its first record.
func (w *writer) begin(s *segment, event string, about map[string]any, on *journaled) error {
	if err := w.transact(order{calls: []*call{w.own("", event, about)}, begin: s, journal: on}); err != nil {
		return err
	}
	w.reader.add(s)
	w.active, s.opened = s, w.options.Now()
	w.grow(w.tail.edge.size)
	return nil
}

// nextSegment is a segment that is being prepared.
type nextSegment struct {
	segment *segment
	err     error
	done    chan struct{}
}

// prepareAside prepares a segment while the writer goes on.
func (w *writer) prepareAside(number uint64) *nextSegment {
	n := &nextSegment{done: make(chan struct{})}
	go func() {
		defer close(n.done)
		n.segment, n.err = w.prepareSegment(number)
	}()
	return n
}

// prepareSegment makes an empty segment. It gets its name last: a file with the name of a
// segment is one.
func (w *writer) prepareSegment(number uint64) (*segment, error) {
	s := &segment{number: number, path: segmentPath(w.reader.data, number), active: true}
	draft := filepath.Join(filepath.Dir(s.path), fmt.Sprintf(".prepared-%08d", number))
	_ = os.Remove(draft)
	db, err := openFile(draft, boltfile.ToWrite, w.writing())
	if err != nil {
		return nil, err
	}
	db.AllocSize = allocSize
	s.db = db
	err = guard(func() error {
		return db.Update(func(tx *bbolt.Tx) error {
			for _, name := range []string{BucketMeta, BucketRecords, BucketHashes, BucketIDs, BucketCheckpoints} {
				if _, err := tx.CreateBucket([]byte(name)); err != nil {
					return err
				}
			}
			return nil
		})
	})
	if err == nil {
		w.options.On.Step(StepPrepare)
		err = rename(draft, s.path)
		w.options.On.Step(StepPrepared)
	}
	if err != nil {
		_ = s.close()
		return nil, errors.Join(err, os.Remove(draft))
	}
	return s, nil
}

func (w *writer) removePrepared() error {
	drafts, err := filepath.Glob(filepath.Join(w.reader.data, LogDir, ".prepared-*"))
	for _, name := range drafts {
		err = errors.Join(err, os.Remove(name))
	}
	return err
}

// takeNext is the prepared segment, or one made now.
func (w *writer) takeNext() (*segment, error) {
	n := w.next
	w.next = nil
	if n == nil {
		return w.prepareSegment(w.active.number + 1)
	}
	<-n.done
	return n.segment, n.err
}

// failed says whether preparing came to an end without a segment.
func (n *nextSegment) failed() bool {
	select {
	case <-n.done:
		return n.err != nil
	default:
		return false
	}
}

// dropNext gives up the prepared segment. Its file is empty, and the next one
// of that number takes its place.
func (w *writer) dropNext() {
	if w.next == nil {
		return
	}
	if s, err := w.takeNext(); err == nil {
		_ = s.close()
	}
}

// Rotate seals the active segment, so that all that is on record now can be read by
// others, and the segment can be rewritten with [Log.Replace]. If writing fails meanwhile it
// returns [ErrUnavailable]; then the segment may be sealed.
func (l *Log) Rotate(ctx context.Context) error {
	w := l.writer
	var old *segment
	var prepared <-chan struct{}
	err := w.order(ctx, func() error {
		old = w.active
		if w.next == nil { // it takes long, and so is made beside the writer
			w.next = w.prepareAside(old.number + 1)
		}
		prepared = w.next.done
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
	err = w.order(ctx, func() error {
		if w.active.number != old.number { // the writer saw by itself that it was full
			return nil
		}
		return w.rotate()
	})
	if err != nil {
		return err
	}
	return old.retire() // if that is not yet done
}

// Replace puts a file in the place of a sealed segment. It must hold the same
// meta and hashes, and be durable. tmp is a name in the log's directory.
func (l *Log) Replace(ctx context.Context, number uint64, tmp string) error {
	// The disk gets the old file back when no process holds it any more, which takes
	// milliseconds. It is held here, so that the writer does not wait for that.
	old, err := plainfile.Open(segmentPath(l.data, number))
	if err != nil {
		return err
	}
	if err := l.writer.order(ctx, func() error { return l.writer.putInPlace(number, tmp) }); err != nil {
		return errors.Join(err, old.Close())
	}
	return errors.Join(old.Close(), plainfile.SyncDir(filepath.Join(l.data, LogDir)))
}

// putInPlace renames a file of the log's directory over that of a sealed segment, while no reader can open it. The rest
// of [Log.Replace] needs no writer.
func (w *writer) putInPlace(number uint64, tmp string) error {
	for _, s := range w.reader.all() {
		if s.number != number {
			continue
		}
		if s == w.active {
			return fmt.Errorf("segment %d is written to: rotate first", number)
		}
		start := time.Now()
		defer func() { w.options.On.Replace(number, time.Since(start)) }()
		w.reader.opening.Lock() // so that no reader opens the old one meanwhile
		defer w.reader.opening.Unlock()
		return errors.Join(s.close(), os.Rename(filepath.Join(w.reader.data, LogDir, filepath.Base(tmp)), s.path))
	}
	return fmt.Errorf("segment %d: %w", number, ErrNotFound)
}
