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

// writing are the options of a segment that is written to. Its memory map is
// large from the start: to enlarge it bbolt waits until nobody reads, and while
// the blocks of the file are hashed ahead, somebody does.
func (l *Log) writing(wait time.Duration) bbolt.Options {
	return bbolt.Options{Timeout: max(wait, time.Millisecond), InitialMmapSize: l.mapped()}
}

func (l *Log) mapped() int { return int(2*l.options.SegmentBytes) + MaxAppend }

// room says whether calls fit below the end of the memory map, with all that
// bbolt adds to them.
func (l *Log) room(calls []*call) bool {
	size := l.w.active.size + allocSize
	for _, c := range calls {
		size += 2*c.size + 512*int64(len(c.entries))
	}
	return size < int64(l.mapped())
}

// turn looks after the size and the age of the active segment: at half its size
// the next one is prepared, at its size its blocks are hashed, then those written
// meanwhile, and then it is sealed. Only the last step keeps the writer.
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
	switch {
	case l.w.ahead.ready() && l.w.ahead.again():
	case l.w.ahead.ready():
		if l.w.tail.edge.size == l.w.tail.checkpointed || len(l.queue) == 0 { // else the next commit brings a checkpoint along
			_ = l.rotate()
		}
	case l.w.ahead != nil || !l.ripe(s):
	case !l.room(nil):
		_ = l.rotate()
	default:
		l.w.ahead = startHashing(s)
	}
}

// ripe says whether a segment is to be sealed. One that holds nothing but its
// first record never is: silence needs no segments.
func (l *Log) ripe(s *segment) bool {
	if l.w.tail.edge.size-s.first < 2 || time.Since(l.w.tried) < l.options.RetryEvery {
		return false
	}
	return s.size >= l.options.SegmentBytes || l.options.Now().Sub(l.w.opened) >= l.options.SegmentAge
}

// rotate seals the active segment and begins the next. Where the next cannot be
// made, as on a full disk, the active one goes on.
func (l *Log) rotate() error {
	start, old := time.Now(), l.w.active
	next := l.takeNext()
	if next.err != nil {
		l.w.tried = time.Now()
		l.dropAhead()
		return fmt.Errorf("beginning a segment: %w", next.err)
	}
	if err := l.seal(old, next.segment); err != nil {
		next.drop()
		l.fail(err)
		return l.unavailable()
	}
	_ = os.Chmod(old.path, 0o400)    // a courtesy: the digest is what counts
	go func() { _ = old.retire() }() // unmapping takes milliseconds, and readers may be at it
	l.options.OnRotate(old.number, time.Since(start))
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

// seal ends a segment, and puts its digest into the first record of the next.
func (l *Log) seal(old, next *segment) error {
	if l.w.tail.edge.size > l.w.tail.checkpointed {
		if err := l.transact(nil, order{checkpoint: true}); err != nil {
			return err
		}
	}
	digest, size, err := l.w.ahead.finish(old.path)
	if err != nil {
		return err
	}
	l.dropAhead()
	return l.begin(next, EventSegment, map[string]any{
		"segment": next.number,
		"previous": map[string]any{
			"segment": old.number,
			"file":    filepath.Base(old.path),
			"first":   old.first,
			"records": l.w.tail.edge.size - old.first,
			"size":    size,
			"digest":  digest,
		},
	})
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
	db, err := openFile(draft, boltfile.ToWrite, l.writing(l.options.LockTimeout))
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
