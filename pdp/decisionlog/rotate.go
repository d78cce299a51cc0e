package decisionlog

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"

	"policy-service/pdp/boltfile"
)

// allocSize is by how much the file of a segment grows; each time costs a sync.
const allocSize = 4 << 20

// writing are the options of a segment that is written to. Its memory map is large from
// the start: to enlarge it bbolt waits until nobody reads.
func (l *Log) writing() bbolt.Options {
	return bbolt.Options{
		Timeout:         max(l.options.LockTimeout, time.Millisecond),
		InitialMmapSize: int(2 * l.options.SegmentBytes),
	}
}

// turn looks after the size and the age of the active segment: at half its size the next
// one is prepared, and at its size it is sealed.
func (l *Log) turn() {
	s := l.w.active
	if l.w.failed != nil || s == nil {
		return
	}
	if l.w.next != nil && l.w.next.failed() {
		l.w.next, l.w.tried = nil, time.Now()
	}
	if s.size >= l.options.SegmentBytes/2 && l.w.next == nil && time.Since(l.w.tried) > l.options.RetryEvery {
		l.w.next = l.prepareAside(s.number + 1)
	}
	if l.ripe(s) {
		_ = l.rotate()
	}
}

// ripe reports whether a segment is to be sealed. One that holds nothing but what the
// log says of its own segments never is: silence needs no segments.
func (l *Log) ripe(s *segment) bool {
	size := l.w.tail.edge.size
	if size-s.first < 2 || time.Since(l.w.tried) < l.options.RetryEvery {
		return false
	}
	if s.size >= l.options.SegmentBytes {
		return true
	}
	if l.options.Now().Sub(l.w.opened) < l.options.SegmentAge {
		return false
	}
	idle, err := l.onlyUpkeep(s.first, size-s.first)
	return err == nil && !idle
}

// rotate seals the active segment and begins the next. Where the next cannot be
// made, as on a full disk, the active one goes on.
func (l *Log) rotate() error {
	start, old := time.Now(), l.w.active
	next := l.takeNext()
	if next.err != nil {
		l.w.tried = time.Now()
		return fmt.Errorf("beginning a segment: %w", next.err)
	}
	if err := l.seal(old, next.segment); err != nil {
		next.drop()
		l.fail(err)
		return l.unavailable()
	}
	_ = os.Chmod(old.path, 0o400)    // a courtesy: the digest is what counts
	go func() { _ = old.retire() }() // unmapping takes milliseconds, and readers may be at it
	l.options.On.Rotate(old.number, time.Since(start))
	return nil
}

// retireSealed lets others open a sealed segment, where that is not yet done.
func (l *Log) retireSealed(number uint64) error {
	all := l.all()
	for i, s := range all {
		if s.number == number && i < len(all)-1 { // the last one is the writer's
			return s.retire()
		}
	}
	return nil
}

// seal ends a segment, and begins the next. Its digest is recorded once it is known.
func (l *Log) seal(old, next *segment) error {
	if l.w.tail.edge.size > l.w.tail.checkpointed {
		if err := l.transact(nil, order{checkpoint: true}); err != nil {
			return err
		}
	}
	left, _ := l.digests.list()
	left = append(left, old.number)
	about := map[string]any{"segment": next.number, "undigested": l.digests.undoubted(left)}
	if err := l.begin(next, EventSegment, about); err != nil {
		return err
	}
	l.digests.set(left)
	return nil
}

// begin makes a prepared segment the active one, by its first record.
func (l *Log) begin(s *segment, event string, about map[string]any) error {
	if err := l.transact([]*call{l.own(event, about)}, order{begin: s}); err != nil {
		return err
	}
	l.add(s)
	l.w.active, l.w.opened = s, l.options.Now()
	l.grow(l.w.tail.edge.size)
	return nil
}

// nextSegment is a segment that is being prepared.
type nextSegment struct {
	segment *segment
	err     error
	done    chan struct{}
}

// prepareAside prepares a segment while the writer goes on.
func (l *Log) prepareAside(number uint64) *nextSegment {
	n := &nextSegment{done: make(chan struct{})}
	go func() {
		defer close(n.done)
		made := l.prepareSegment(number)
		n.segment, n.err = made.segment, made.err
	}()
	return n
}

// prepareSegment makes an empty segment. It gets its name last: what has the
// name of a segment is one.
func (l *Log) prepareSegment(number uint64) *nextSegment {
	s := &segment{number: number, path: segmentPath(l.data, number), active: true}
	draft := filepath.Join(filepath.Dir(s.path), fmt.Sprintf(".prepared-%08d", number))
	_ = os.Remove(draft)
	db, err := openFile(draft, boltfile.ToWrite, l.writing())
	if err != nil {
		return &nextSegment{err: err}
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
		err = rename(draft, s.path)
	}
	if err != nil {
		_ = s.close()
		return &nextSegment{err: errors.Join(err, os.Remove(draft))}
	}
	return &nextSegment{segment: s}
}

func (l *Log) removePrepared() error {
	drafts, err := filepath.Glob(filepath.Join(l.data, LogDir, ".prepared-*"))
	for _, name := range drafts {
		err = errors.Join(err, os.Remove(name))
	}
	return err
}

// takeNext is the prepared segment, or one made now.
func (l *Log) takeNext() *nextSegment {
	n := l.w.next
	l.w.next = nil
	if n == nil {
		return l.prepareSegment(l.w.active.number + 1)
	}
	<-n.done
	return n
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

func (n *nextSegment) drop() {
	if n.segment != nil {
		_ = n.segment.close()
	}
}

// dropNext gives up the prepared segment. Its file is empty, and the next one
// of that number takes its place.
func (l *Log) dropNext() {
	if l.w.next != nil {
		<-l.w.next.done
		l.w.next.drop()
		l.w.next = nil
	}
}
