package decisionlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"go.etcd.io/bbolt"
	"golang.org/x/mod/sumdb/tlog"
)

// digests records the digests of sealed segments, and knows which are not on record. The
// active segment says which: its first record names them, and each EventSealed after that
// strikes one off. So the list is right after any crash, and no digest is recorded twice.
//
// Only the writer changes the list. A goroutine of its own works it off.
type digests struct {
	writer *writer
	stop   func() // ends the goroutine, and waits for its end

	mu       sync.Mutex
	segments []uint64         // their numbers, ascending
	faults   map[uint64]error // why the digests of some are not recorded
	closed   bool             // no digest is recorded any more
	changed  chan struct{}    // closed at the next change
}

func newDigests(w *writer) *digests {
	return &digests{writer: w, stop: func() {}, faults: map[uint64]error{}, changed: make(chan struct{})}
}

// change changes the list, and wakes those who wait for a change.
func (d *digests) change(do func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	do()
	close(d.changed)
	d.changed = make(chan struct{})
}

func (d *digests) set(segments []uint64) { d.change(func() { d.segments = segments }) }

// doubt takes a list that a record may contradict which is missing or altered. Of these
// segments no digest is recorded: it may be on record, and another one would hide what was
// done to the file since.
func (d *digests) doubt(segments []uint64, err error) {
	err = fmt.Errorf("%w: %w", errDoubt, err)
	d.change(func() {
		d.segments = segments
		for _, n := range segments {
			d.faults[n] = err
		}
	})
	d.writer.options.On.Failure(fmt.Errorf("%w: segments %d: %w", ErrUndigested, segments, err))
}

// errDoubt: the digest of a segment may be on record, or not.
var errDoubt = errors.New("a record that may have the digest is missing or altered")

// undoubted leaves out the segments of which a later one must not say that they have no
// digest on record.
func (d *digests) undoubted(segments []uint64) []uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(segments), func(n uint64) bool { return errors.Is(d.faults[n], errDoubt) })
}

// passingRetries is after how many times RetryEvery a segment is read again that could not
// be read: other programs have it open, or this one has too many files open.
const passingRetries = 40

// retry takes a fault back that may have passed.
func (d *digests) retry(segment uint64, passing error) {
	d.change(func() {
		if d.faults[segment] == passing {
			delete(d.faults, segment)
		}
	})
}

// list returns all segments of the list, and those whose digest can be recorded.
func (d *digests) list() (all, open []uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	open = slices.DeleteFunc(slices.Clone(d.segments), func(n uint64) bool { return d.faults[n] != nil })
	return slices.Clone(d.segments), open
}

// wait waits until the digest of a segment is on record. A segment with a fault must stay
// as it is: a new file in its place would hide what was done.
func (d *digests) wait(ctx context.Context, segment uint64) error {
	for {
		d.mu.Lock()
		listed, fault, closed, changed := slices.Contains(d.segments, segment), d.faults[segment], d.closed, d.changed
		d.mu.Unlock()
		switch {
		case !listed:
			return nil
		case fault != nil:
			return fmt.Errorf("%w: the digest of segment %d is not on record: %w", ErrDamaged, segment, fault)
		case closed:
			return ErrClosed
		}
		select {
		case <-changed:
		case <-time.After(d.writer.options.RetryEvery): // while writing fails there is no change to wait for
			if d.writer.state.now().Err != nil {
				return fmt.Errorf("%w: the digest of segment %d is not on record yet", ErrUnavailable, segment)
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// readUndigested reads the list from the active segment. It ends after a few records,
// unless a crash came before a digest was on record. The lines must be those that the tree
// was made of. If one is not, the error says so, and the list has all segments that the
// line may be about.
func readUndigested(tx *bbolt.Tx, first uint64, tree edge, sealed []uint64) (left []uint64, err error) {
	hashes, err := segmentHashes(tx, first)
	if err != nil {
		return sealed, err
	}
	read, err := edgeBefore(tx, first)
	left = slices.Clone(sealed)
	records := tx.Bucket([]byte(BucketRecords))
	for err == nil && len(left) > 0 && read.size < tree.size {
		line := records.Get(number(read.size))
		var leaf tlog.Hash
		if leaf, err = storedHash(tx, tlog.StoredHashIndex(0, int64(read.size))); err != nil {
			break
		}
		if tlog.RecordHash(line) != leaf {
			err = fmt.Errorf("%w: record %d is missing, or is not the one that was hashed", ErrDamaged, read.size)
			break
		}
		if read.size == first {
			left = nil
		}
		left = undigestedAfter(left, line)
		read.add(nil, leaf)
	}
	if read.size > first {
		if err := read.begins(tree, hashes); err != nil {
			return sealed, err
		}
	}
	return left, err
}

// undigestedAfter is the list after a record.
func undigestedAfter(left []uint64, line []byte) []uint64 {
	if !bytes.Contains(line, []byte(`"segment_`)) {
		return left
	}
	var details struct {
		Segment    uint64   `json:"segment"`
		Undigested []uint64 `json:"undigested"`
	}
	s, err := Parse(line)
	switch {
	case err != nil || s.Kind != KindAdmin || json.Unmarshal(s.Details, &details) != nil:
	case s.Event == EventSegment:
		return details.Undigested
	case s.Event == EventSealed:
		return slices.DeleteFunc(left, func(n uint64) bool { return n == details.Segment })
	}
	return left
}

// start begins to record digests.
func (d *digests) start() {
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		d.run(ctx)
		d.change(func() { d.closed = true })
	})
	d.stop = func() {
		cancel()
		done.Wait()
	}
}

// run records the digests of sealed segments, oldest first.
func (d *digests) run(ctx context.Context) {
	for {
		d.mu.Lock()
		changed := d.changed
		d.mu.Unlock()
		var again <-chan time.Time
		if _, open := d.list(); len(open) > 0 {
			switch err := d.record(ctx, open[0]); {
			case err == nil:
				continue
			case errors.Is(err, ErrClosed):
				return
			case errors.Is(err, ErrUnavailable):
				again = time.After(d.writer.options.RetryEvery)
			}
		}
		select {
		case <-changed:
		case <-again:
		case <-ctx.Done():
			return
		}
	}
}

// record records the digest of one segment, which is computed beside the writer.
func (d *digests) record(ctx context.Context, segment uint64) error {
	var tree edge
	if err := d.writer.order(ctx, func() error { tree = d.writer.tail.edge.clone(); return nil }); err != nil {
		return err
	}
	file, err := d.of(ctx, segment, tree)
	if err != nil {
		return err
	}
	return d.writer.order(ctx, func() error { return d.put(file) })
}

// finish records what is left when nothing else is written any more.
func (d *digests) finish() error {
	_, open := d.list()
	for _, segment := range open {
		if file, err := d.of(context.Background(), segment, d.writer.tail.edge); err != nil {
			continue // Hooks.Failure got it
		} else if err := d.put(file); err != nil {
			return err
		}
	}
	return nil
}

// put puts a digest on record. Only the writer calls it. An order that was given up
// may have been carried out all the same: then the segment is off the list.
func (d *digests) put(file SegmentFile) error {
	all, _ := d.list()
	at := slices.Index(all, file.Segment)
	if at < 0 {
		return nil
	}
	about := map[string]any{
		"segment": file.Segment,
		"first":   file.First,
		"records": file.Records,
		"size":    file.Size,
		"digest":  file.Digest,
	}
	if err := d.writer.record(EventSealed, about); err != nil {
		return d.writer.fail(err)
	}
	d.set(slices.Delete(all, at, at+1))
	return nil
}

// of computes the digest of a sealed segment, and checks after that what was read. In this
// order: what is altered in between is found by the check, or gives the file another digest
// than the one on record. A fault goes to Hooks.Failure.
func (d *digests) of(ctx context.Context, segment uint64, tree edge) (file SegmentFile, err error) {
	all := d.writer.reader.Segments()
	var hashed os.FileInfo
	if at := slices.IndexFunc(all, func(s Segment) bool { return s.Number == segment }); at < 0 {
		err = fmt.Errorf("segment %d is not here", segment)
	} else if file, hashed, err = fileOf(all[at], all[at].Path); err == nil {
		err = errors.Join(d.writer.reader.retireSealed(segment), d.check(ctx, all[at], hashed, tree))
	}
	if err != nil && ctx.Err() == nil && !errors.Is(err, ErrUnavailable) {
		d.change(func() { d.faults[segment] = err })
		d.writer.options.On.Failure(fmt.Errorf("%w: segment %d: %w", ErrUndigested, segment, err))
		if !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrGone) {
			time.AfterFunc(passingRetries*d.writer.options.RetryEvery, func() { d.retry(segment, err) })
		}
	}
	return file, err
}

// check makes the tree of a sealed segment again, from its edge and its lines. The
// hashes stored with them must be those of the tree, and it must be the beginning of the
// tree that the writer has in memory. The file must be the one that was hashed: check opens
// it once, for itself, because the log's reader can have another file open, or close it and
// open the one that has its name by then.
func (d *digests) check(ctx context.Context, sealed Segment, hashed os.FileInfo, tree edge) error {
	s := &segment{number: sealed.Number, first: sealed.First, path: sealed.Path}
	r := &Reader{segments: []*segment{s}}
	defer func() { _ = r.Close() }()
	end := sealed.First + sealed.Records
	r.size.Store(end)
	// Nothing is removed from a segment before its digest is on record.
	w := &walker{visit: func(r Record) error { return r.orGone() }}
	err := r.view(s, func(tx *bbolt.Tx) (err error) { w.edge, err = edgeBefore(tx, s.first); return err })
	if err != nil {
		return err
	}
	before := w.edge.clone()
	if err := r.walkTo(ctx, w, end); err != nil {
		return err
	}
	if !unchanged(hashed, s.sound) {
		return fmt.Errorf("%s is not the file any more that was hashed", sealed.Path)
	}
	if err := w.edge.begins(tree, before.then(splitAt(end, r, d.writer.reader))); err != nil {
		return fmt.Errorf("records %d to %d are not those that were written: %w", sealed.First, end-1, err)
	}
	return nil
}
