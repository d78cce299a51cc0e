package decisionlog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// The index says which records of a segment may pass a filter, so that a page of a
// large log is found without reading all of it. It is made beside the writer, of
// what is durable already, and only narrows down: what it names is read and
// filtered all the same, and what it does not reach yet is scanned. So no answer
// depends on it, only how soon there is one.
//
//	DATA/log/index/00000001.db   of the sealed segment of that number: a bbolt file that may be deleted at any time, and
//	                             is made again. Names that begin with a dot are files being written.
//
//	meta   "format" the decimal IndexVersion; "first" and "next": it covers the sequences from one to before the other
//	terms  a letter for the member, and its value (see terms) -> the records that have it: how far each is from the one
//	       before, the first one from "first", as unsigned varints
//
// What can still be appended to is indexed in memory. A segment that is replaced,
// by redaction or retention, loses its index first and gets another, made of what is
// left: no file of the index keeps what is gone from the log.
type index struct {
	log  *Log
	dir  string
	wake chan struct{} // something is to be made

	mu     sync.Mutex
	tail   *postings      // of the segment that is followed
	barred map[uint64]int // segments that are being replaced: no index is made of them
	making uint64         // the segment whose index is being made; 0 is none
	cancel context.CancelFunc
	made   *sync.Cond // with mu: making has changed

	stop func() // and wait for the end
}

const (
	// IndexVersion is the version of the index's files. Others are made again.
	IndexVersion = 2
	// IndexDir is where they are, below the data directory.
	IndexDir = "log/index"

	indexRetry = time.Minute           // an index that could not be made is tried again
	indexEvery = 20 * time.Millisecond // and records are taken up together: until then they are scanned
)

func newIndex(l *Log) *index {
	x := &index{log: l, dir: filepath.Join(l.data, filepath.FromSlash(IndexDir)), wake: make(chan struct{}, 1), barred: map[uint64]int{}, stop: func() {}}
	x.made = sync.NewCond(&x.mu)
	return x
}

// start begins to index, and to make what is missing.
func (x *index) start() {
	ctx, cancel := context.WithCancel(context.Background())
	var both sync.WaitGroup
	both.Go(func() { x.follow(ctx) })
	both.Go(func() { x.fill(ctx) })
	x.stop = func() {
		cancel()
		both.Wait()
	}
}

func (x *index) path(segment uint64) string {
	return filepath.Join(x.dir, fmt.Sprintf(SegmentName, segment))
}

// sweep removes what a crash left half written.
func (x *index) sweep() error {
	drafts, err := filepath.Glob(filepath.Join(x.dir, ".*"))
	for _, name := range drafts {
		err = errors.Join(err, os.Remove(name))
	}
	return err
}

// without runs what replaces a segment. From before it until after no file of the
// index is of that segment.
func (x *index) without(segment uint64, replace func() error) error {
	x.mu.Lock()
	x.barred[segment]++
	for x.making == segment {
		x.cancel()
		x.made.Wait()
	}
	x.mu.Unlock()
	err := os.Remove(x.path(segment))
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		err = replace()
	}
	x.mu.Lock()
	if x.barred[segment]--; x.barred[segment] == 0 {
		delete(x.barred, segment)
	}
	if x.tail != nil && x.tail.segment == segment {
		x.tail.replaced = true
	}
	x.mu.Unlock()
	x.wakeUp()
	return err
}

func (x *index) wakeUp() {
	select {
	case x.wake <- struct{}{}:
	default:
	}
}

// follow indexes what is appended, from the beginning of the active segment on.
func (x *index) follow(ctx context.Context) {
	all := x.log.all()
	next := all[len(all)-1].first
	for x.log.Beyond(ctx, next) == nil {
		s, err := x.log.find(next)
		if err == nil {
			next, err = x.add(ctx, s, next, min(x.log.Size(), x.log.endOf(s)))
		}
		wait := indexEvery
		if err != nil { // the log is being opened again
			wait = x.log.options.RetryEvery
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
	}
}

// add indexes the records of a span of one segment in memory. The segment before
// it is at its end then, and gets its file.
func (x *index) add(ctx context.Context, s *segment, from, to uint64) (uint64, error) {
	if x.tail == nil || x.tail.segment != s.number { // only this goroutine sets it
		if x.tail != nil {
			x.keep(ctx, x.tail)
		}
		x.mu.Lock()
		x.tail = newPostings(s.number, s.first)
		x.mu.Unlock()
		x.wakeUp() // where the file could not be written
		from = s.first
	}
	for from < to {
		some, err := x.log.lines(s, from, to, false, readRecords)
		if err != nil || ctx.Err() != nil {
			return from, errors.Join(err, ctx.Err())
		}
		next := to
		if len(some) > 0 {
			next = some[len(some)-1].sequence + 1
		}
		x.mu.Lock()
		x.tail.add(some, next)
		x.mu.Unlock()
		from = next
	}
	return to, nil
}

// keep writes the index of a sealed segment, unless that is being replaced or was,
// or stop comes first.
func (x *index) keep(ctx context.Context, p *postings) {
	// Where it fails it is tried again from the segment's records, and then told of.
	_ = x.exclusively(ctx, p.segment, func(ctx context.Context) error {
		if p.replaced {
			return errBarred
		}
		return x.write(ctx, p)
	})
}

// errBarred: the segment is being replaced.
var errBarred = errors.New("the segment is being replaced")

// exclusively makes one file at a time, and none of a segment that is being
// replaced.
func (x *index) exclusively(ctx context.Context, segment uint64, do func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	x.mu.Lock()
	for x.making != 0 {
		x.made.Wait()
	}
	if x.barred[segment] > 0 {
		x.mu.Unlock()
		return errBarred
	}
	x.making, x.cancel = segment, cancel
	x.mu.Unlock()
	err := do(ctx)
	x.mu.Lock()
	x.making = 0
	x.made.Broadcast()
	x.mu.Unlock()
	return err
}

// fill makes the indexes that are missing, the newest first.
func (x *index) fill(ctx context.Context) {
	retry := time.NewTimer(0)
	defer retry.Stop()
	wake := x.wake
	for {
		select {
		case <-ctx.Done():
			return
		case <-retry.C:
		case <-wake:
		}
		wake = x.wake
		if err := x.fillAll(ctx); err != nil {
			x.log.options.OnIndex(err)
			retry.Reset(indexRetry)
			wake = nil // not with each page that is asked for
		}
	}
}

func (x *index) fillAll(ctx context.Context) (err error) {
	segments := x.log.all()
	for _, s := range slices.Backward(segments[:len(segments)-1]) {
		if ctx.Err() != nil {
			return nil
		}
		if x.followed(s.number) != nil {
			continue // it is about to be written
		}
		if _, failed := os.Stat(x.path(s.number)); failed == nil {
			continue
		}
		failed := x.exclusively(ctx, s.number, func(ctx context.Context) error { return x.build(ctx, s) })
		if failed != nil && !errors.Is(failed, errBarred) && !errors.Is(failed, context.Canceled) {
			err = errors.Join(err, fmt.Errorf("the index of %s: %w", filepath.Base(s.path), failed))
		}
	}
	return err
}

// build makes the index of a sealed segment from its records.
func (x *index) build(ctx context.Context, s *segment) error {
	p, end := newPostings(s.number, s.first), x.log.endOf(s)
	for p.next < end {
		some, err := x.log.lines(s, p.next, end, false, readRecords)
		if err = errors.Join(err, ctx.Err()); err != nil {
			return err
		}
		if len(some) == 0 {
			break
		}
		p.add(some, some[len(some)-1].sequence+1)
	}
	p.next = end
	return x.write(ctx, p)
}

// followed is what is in memory of a segment, nil where that is nothing.
func (x *index) followed(segment uint64) *postings {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.tail != nil && x.tail.segment == segment {
		return x.tail
	}
	return nil
}
