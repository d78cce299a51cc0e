// Package index says which records of a segment may pass a filter, so that a page of a
// large log is found without reading all of it. It is made beside the writer, of records that are
// durable already.
//
// The package refuses to decide: an index only narrows down. The records that it names are read and
// filtered all the same, and those that it does not reach yet are scanned. So no answer depends
// on it, only how soon there is one. It knows sequences and terms, and nothing else of
// the log.
package index

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"policy-service/pdp/internal/plainfile"
)

// Source is the log that is indexed.
type Source interface {
	// Layout lists the segments that have records, in order. The last one is written to.
	Layout() []Segment
	// Terms reads the terms of some records from one sequence up to before another, which are
	// of one segment. None means that there are none: the content of all is gone.
	Terms(from, to uint64) ([]Record, error)
	// Beyond waits until there are more records than so many.
	Beyond(ctx context.Context, size uint64) error
}

// Segment is a part of the log that has an index of its own.
type Segment struct {
	Number     uint64
	First, End uint64 // its records are from one sequence to before the other
}

// Record is a record that has content.
type Record struct {
	Sequence uint64
	Terms    Terms
}

// Options say how an index is made.
type Options struct {
	// RetryEvery is how long to wait after the log could not be read.
	RetryEvery time.Duration
	// OnError gets the error if an index cannot be made. It is tried again.
	OnError func(error)
}

// Index is the index of a log. The active segment is indexed in memory. A
// segment that is replaced, by redaction or retention, loses its index first and gets
// another, made of the rest: no file of the index keeps content that is gone from the log.
//
//	DATA/log/index/00000001.db   of the sealed segment of that number: a bbolt file that may be deleted at any time, and
//	                             is made again. Names that begin with a dot are files being written.
//
//	meta   "format" the decimal Version; "first" and "next": it covers the sequences from one to before the other
//	terms  a letter for the member, and its value (see [Term]) -> the records that have it: how far each is from the one
//	       before, the first one from "first", as unsigned varints
type Index struct {
	log     Source
	options Options
	dir     string
	wake    chan struct{} // something is to be made

	making sync.Mutex // held while a file is made, and while a segment is replaced; taken before mu
	mu     sync.Mutex
	tail   *postings // of the segment that is followed
	fed    feed

	end func() // of Start: stops both goroutines, and waits for them
}

const (
	// Version is the version of the index's files. Others are made again.
	Version = 4
	// Dir is where they are, below the data directory.
	Dir = "log/index"

	indexRetry = time.Minute            // an index that could not be made is tried again
	lookWait   = 100 * time.Millisecond // for a file that another process is opening
	indexEvery = 20 * time.Millisecond  // and records are taken up together: until then they are scanned
)

// New is the index of the log in a data directory. It has the files on disk until [Index.Start].
func New(data string, log Source, o Options) *Index {
	return &Index{
		log:     log,
		options: o,
		dir:     filepath.Join(data, filepath.FromSlash(Dir)),
		wake:    make(chan struct{}, 1),
		end:     func() {},
	}
}

// Stop ends the work of [Index.Start], and waits for its end.
func (x *Index) Stop() { x.end() }

// Start begins to index, and to make missing files.
func (x *Index) Start() {
	x.fed.begin()
	ctx, cancel := context.WithCancel(context.Background())
	var both sync.WaitGroup
	both.Go(func() { x.follow(ctx) })
	both.Go(func() { x.fill(ctx) })
	x.end = func() {
		cancel()
		both.Wait()
	}
}

func (x *Index) path(segment uint64) string {
	return filepath.Join(x.dir, fmt.Sprintf("%08d.db", segment))
}

// Sweep removes files that a crash left half written.
func (x *Index) Sweep() error {
	drafts, err := filepath.Glob(filepath.Join(x.dir, ".*"))
	for _, name := range drafts {
		err = errors.Join(err, os.Remove(name))
	}
	return err
}

// Without runs the replacement of a segment, once no file of the index is being made. From before it until after no file
// of the index is of that segment.
func (x *Index) Without(segment uint64, replace func() error) error {
	x.making.Lock()
	defer x.making.Unlock()
	err := plainfile.Remove(x.path(segment))
	if err == nil {
		err = replace()
	}
	x.mu.Lock()
	if x.tail != nil && x.tail.segment == segment {
		x.tail.replaced = true
	}
	x.fed.forget() // it may hold terms that are gone
	x.mu.Unlock()
	x.wakeUp()
	return err
}

func (x *Index) wakeUp() {
	select {
	case x.wake <- struct{}{}:
	default:
	}
}

// follow indexes appended records, from the beginning of the active segment on.
func (x *Index) follow(ctx context.Context) {
	all := x.log.Layout()
	next := all[len(all)-1].First
	for x.log.Beyond(ctx, next) == nil {
		s, err := x.segmentOf(next)
		if err == nil {
			next, err = x.Add(ctx, s, next, s.End)
		}
		wait := indexEvery
		if err != nil { // the log is being opened again
			wait = x.options.RetryEvery
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
	}
}

// segmentOf is the segment that a record stands in.
func (x *Index) segmentOf(sequence uint64) (Segment, error) {
	for _, s := range x.log.Layout() {
		if s.First <= sequence && sequence < s.End {
			return s, nil
		}
	}
	return Segment{}, fmt.Errorf("record %d is in no segment", sequence)
}

// Add indexes the records of a span of one segment in memory. The segment before
// it is at its end then, and gets its file.
func (x *Index) Add(ctx context.Context, s Segment, from, to uint64) (uint64, error) {
	if x.tail == nil || x.tail.segment != s.Number { // only this goroutine sets it
		if x.tail != nil {
			x.keep(ctx, x.tail)
		}
		x.mu.Lock()
		x.tail = newPostings(s.Number, s.First)
		x.mu.Unlock()
		x.wakeUp() // where the file could not be written
		from = s.First
	}
	for from < to {
		var until uint64
		if from, until = x.addFed(from, to); from == until {
			continue
		}
		some, err := x.log.Terms(from, until)
		if err != nil || ctx.Err() != nil {
			return from, errors.Join(err, ctx.Err())
		}
		next := until
		if len(some) > 0 {
			next = some[len(some)-1].Sequence + 1
		}
		x.mu.Lock()
		x.tail.add(some, next)
		x.mu.Unlock()
		from = next
	}
	return to, nil
}

// fedAtOnce is how many records are indexed while queries wait.
const fedAtOnce = 1000

// addFed indexes records that were fed, as long as none is missing. Missing ones are from next up to
// before until; nothing is if they are the same.
func (x *Index) addFed(from, to uint64) (next, until uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for most := min(to, from+fedAtOnce); from < most; {
		sequence, terms, ok := x.fed.first()
		if !ok {
			return from, to
		}
		if sequence > from {
			return from, min(sequence, to)
		}
		if sequence == from {
			x.tail.addOne(from, terms)
			from++
		}
		x.fed.pass()
	}
	return from, from
}

// keep writes the index of a sealed segment, unless that was replaced, or ctx ends first.
func (x *Index) keep(ctx context.Context, p *postings) {
	x.making.Lock()
	defer x.making.Unlock()
	if !p.replaced {
		_ = x.write(ctx, p) // on an error fill makes it from the segment's records, and reports an error of its own
	}
}

// fill makes the indexes that are missing, the newest first.
func (x *Index) fill(ctx context.Context) {
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
		if err := x.Fill(ctx); err != nil {
			x.options.OnError(err)
			retry.Reset(indexRetry)
			wake = nil // not with each page that is asked for
		}
	}
}

// Fill makes the indexes that are missing, once.
func (x *Index) Fill(ctx context.Context) (err error) {
	segments := x.log.Layout()
	for _, s := range slices.Backward(segments[:len(segments)-1]) {
		if ctx.Err() != nil {
			return nil
		}
		if x.followed(s.Number) != nil {
			continue // it is about to be written
		}
		if _, failed := os.Stat(x.path(s.Number)); failed == nil {
			continue
		}
		if failed := x.build(ctx, s); failed != nil && !errors.Is(failed, context.Canceled) {
			err = errors.Join(err, fmt.Errorf("the index of %s: %w", filepath.Base(x.path(s.Number)), failed))
		}
	}
	return err
}

// build makes the index of a sealed segment from its records.
func (x *Index) build(ctx context.Context, s Segment) error {
	x.making.Lock()
	defer x.making.Unlock()
	p, end := newPostings(s.Number, s.First), s.End
	for p.next < end {
		some, err := x.log.Terms(p.next, end)
		if err = errors.Join(err, ctx.Err()); err != nil {
			return err
		}
		if len(some) == 0 {
			break
		}
		p.add(some, some[len(some)-1].Sequence+1)
	}
	p.next = end
	return x.write(ctx, p)
}

// followed has the postings in memory of a segment, nil if it is not the newest one. Others have their postings in a file.
func (x *Index) followed(segment uint64) *postings {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.tail != nil && x.tail.segment == segment {
		return x.tail
	}
	return nil
}
