// Package decisionlog keeps every decision on record, so that every record that is altered,
// removed, moved or added later can be found. Call [Open], then [Log.Append]. To read alone,
// call [segment.OpenReader], or [segment.Read] for a log as of a checkpoint.
//
// A record is a line of JSON. Its bytes are the leaf of a Merkle tree, whose
// root is signed now and then: a checkpoint. Lines, tree and checkpoints stand
// together in bbolt files, the segments, of which only the last is written to.
//
// Package format specifies the files. writer.go and commit.go write them, and tail.go opens them again. rotate.go seals
// segments. removal.go takes content out of them. [segment.Reader] and [record.Recorded] read them, and all else
// reads through these two: exports, reports and the index have rooms of their own.
//
// The package refuses to judge what it keeps: it masks nothing, and never serialises a line a
// second time.
package decisionlog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"policy-service/pdp/internal/boltfile"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/index"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/internal/plainfile"
)

// Log is an open log: one writer, and all the reading of [segment.Reader].
//
// [Log.Append] hands what is to be recorded to the writer's goroutine, [writer.run],
// which puts all that waits into one transaction ([writer.transact]). If that
// fails the file is closed, and nothing is answered before it was opened again
// and checked ([writer.recover]).
type Log struct {
	*segment.Reader
	data     string
	writer   *writer
	index    *index.Index
	removals removals
	tiles    tiles
	lock     *os.File
	found    []record.UnsignedTail
	origin   string
	before   time.Time
}

// Origin is the name of the log. Its checkpoints and keys have it, under every key.
func (l *Log) Origin() string { return l.origin }

// Before returns the time of the last record that was there when the log was opened. No record before it has a later time.
func (l *Log) Before() time.Time { return l.before }

// Unsigned are the records that this start found without a checkpoint and without a MAC, which are named now.
func (l *Log) Unsigned() []record.UnsignedTail { return l.found }

// Open opens the log in a data directory, or creates it. If its journal is damaged, the error is [ErrLost].
func Open(data string, options Options) (*Log, error) {
	return open(data, options, (*writer).replay)
}

// open opens the log. replay fills it with what its journal has, and returns how many records that were.
func open(data string, options Options, replay func(*writer) (int, error)) (*Log, error) {
	if options = options.withDefaults(); options.Mode != Strict && options.Mode != BestEffort {
		return nil, fmt.Errorf("there is no mode %q: try %s or %s", options.Mode, Strict, BestEffort)
	}
	r := segment.NewReader(data)
	l := &Log{Reader: r, data: data, writer: newWriter(r, data, options)}
	l.index = index.New(data, l, index.Options{RetryEvery: options.RetryEvery, OnError: options.On.Failure})
	l.writer.told.index = l.index
	l.removals = removals{log: l, contents: map[uint64]int64{}}
	if err := l.open(replay); err != nil {
		l.abandon()
		return nil, fmt.Errorf("opening the decision log: %w", err)
	}
	if c, err := r.CheckpointTo(r.Size()); err == nil {
		l.writer.told.signed.Store(&c)
	}
	l.origin = l.writer.key.Name()
	go l.writer.run()
	err := errors.Join(l.index.Sweep(), l.removals.finish(context.Background()))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("opening the decision log: %w", err), l.Close())
	}
	if options.Index {
		l.index.Start()
	}
	return l, nil
}

func (l *Log) open(replay func(*writer) (int, error)) (err error) {
	if err := os.MkdirAll(filepath.Join(l.data, format.LogDir), 0o700); err != nil {
		return err
	}
	if err := l.takeLock(); err != nil {
		return err
	}
	crashed, err := l.writer.openTail()
	if err == nil {
		err = l.writer.checkEdge()
	}
	if err == nil {
		err = l.GoesOn()
	}
	if err != nil {
		return err
	}
	doubt, had := l.writer.tail.doubt, l.writer.tail.Edge.Size
	replayed, err := replay(l.writer)
	if err != nil {
		return err
	}
	l.before = l.writer.tail.Time
	named := len(l.writer.tails)
	calls := l.writer.settle()
	l.found = l.writer.tails[named:]
	if crashed || replayed > 0 || doubt != "" { // all that a crash left may be in the journal
		calls = append(calls, l.writer.crashed(had, replayed))
	}
	if len(calls) > 0 {
		if err := l.writer.transact(order{calls: calls}); err != nil {
			return err
		}
	}
	return l.writer.startJournal(order{})
}

// takeLock takes the lock of the log's directory. bbolt's own is on the active segment, and
// would let a second writer in while the first one rotates.
func (l *Log) takeLock() (err error) {
	// One open for writing keeps a file system from being remounted.
	if l.lock, err = plainfile.OpenFile(filepath.Join(l.data, format.LockFile), os.O_CREATE|os.O_RDONLY, 0o600); err != nil {
		return err
	}
	if err = boltfile.Lock(l.lock, true, l.writer.options.LockTimeout); errors.Is(err, boltfile.ErrLocked) {
		return segment.ErrLocked
	}
	return err
}

// abandon lets go of everything, whatever state it is in.
func (l *Log) abandon() {
	l.writer.letGo()
	l.writer.frames.refuse(ErrClosed)
	_ = l.Reader.Close()
	if l.lock != nil {
		_ = boltfile.Unlock(l.lock)
	}
}

// Append puts entries on record, together or not at all. When it returns nil in strict mode they are
// durable, and each read of the log finds them. If ctx ends first, or the error is ErrUnavailable, they
// may be on record or not: nothing may be answered that depends on it. All entries have the same caller.
// If that caller is at a bound, the error is a [*RoomError]; see [Log.Limit].
func (l *Log) Append(ctx context.Context, entries []record.Entry) error {
	if len(entries) == 0 {
		return nil
	}
	w := l.writer
	c := &call{at: w.options.Now(), caller: entries[0].Caller}
	wait, mayRefuse, framed := w.options.Mode == Strict, true, true
	c.entries = make([]prepared, 0, len(entries))
	for i := range entries {
		e := &entries[i]
		id := e.ID
		if id == "" {
			id = w.options.NewID()
		}
		p, err := prepare(e, id, w.options.Kinds)
		if err != nil {
			return err
		}
		c.entries = append(c.entries, p)
		c.size += int64(len(p.body) + len(p.id))
		wait, mayRefuse, framed = wait || waits(e), mayRefuse && refusable(e), framed && e.Event == ""
	}
	if c.size > format.MaxAppend {
		return fmt.Errorf("%d records of together %d bytes: %w", len(entries), c.size, ErrTooLarge)
	}
	var err error
	if mayRefuse {
		err = w.options.Refuse(c.at)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", segment.ErrUnavailable, err)
	}
	c.weight = weigh(c.entries)
	c.payer, err = w.accounts.take(cmp.Or(entries[0].Payer, entries[0].Caller), c.weight, mayRefuse)
	if err != nil {
		return err
	}
	c.taken = true
	switch {
	case !wait:
		return w.offer(c)
	case framed && c.size < callBytes:
		c.waits = true
		if err := w.admit(ctx, c); err != nil {
			return err
		}
		return w.frames.join(ctx, c)
	}
	return w.submit(ctx, c)
}

// Withdraw puts on record that a decision was never answered, once for each decision. The record counts toward the account of
// a caller.
func (l *Log) Withdraw(ctx context.Context, tenant, caller string, w record.Withdrawn) error {
	e := record.Entry{ID: "withdrawn-" + w.Decision, Kind: format.KindAdmin, Tenant: tenant, Payer: caller, Event: format.EventWithdrawn}
	if known, err := l.Has(e.ID); known || err != nil {
		return err
	}
	w.Reason = "its use was given back before it was settled, so nobody was answered"
	e.Details = record.Details(w)
	return l.Append(ctx, []record.Entry{e})
}

// Flush returns when what was answered before is on record, also records that no caller waits for in best effort. What
// a caller waits for still, or gave up, may come later.
func (l *Log) Flush(ctx context.Context) error {
	return l.writer.order(ctx, func() error { return nil })
}

// What was answered is in the journal at first, and in the segments a moment later. These reads see
// it at once: they wait until the segments have it, and fail if they cannot know.

// Has reports whether there is a record with an id, or was. While the log cannot be written that is not known: the
// record that failed last may be there or not.
func (l *Log) Has(id string) (bool, error) {
	if !l.Status().OK {
		return false, segment.ErrUnavailable
	}
	_, err := l.ByID(id)
	switch {
	case err == nil, errors.Is(err, segment.ErrGone):
		return true, nil
	case errors.Is(err, segment.ErrNotFound):
		return false, nil
	}
	return false, err
}

// ByID is [segment.Reader.ByID] of all that was answered.
func (l *Log) ByID(id string) (record.Record, error) {
	ctx, cancel := context.WithTimeout(context.Background(), barrierWait)
	defer cancel()
	if err := l.barrier(ctx); err != nil {
		return record.Record{}, err
	}
	return l.Reader.ByID(id)
}

// Find is [Log.ByID], which also finds the record that has the question of an id.
func (l *Log) Find(id string) (record.Record, error) { return segment.FindQuestion(id, l.ByID) }

// barrierWait is how long a read waits whose caller sets no end. To fill takes milliseconds, unless the disk hangs.
const barrierWait = 10 * time.Second

// barrier waits until the segments have all that was answered.
func (l *Log) barrier(ctx context.Context) error { return l.writer.frames.barrier(ctx) }

// Beyond waits until the log has more records than size. A follower of the log then
// reads them with [segment.Reader.Records]. They are durable.
func (l *Log) Beyond(ctx context.Context, size uint64) error {
	for {
		grown := *l.writer.told.grown.Load() // before the size is read: what comes after that closes this one
		if l.Size() > size {
			return nil
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Close writes what waits, makes a last checkpoint and closes the log.
func (l *Log) Close() error {
	w := l.writer
	if !w.queue.close() {
		<-w.life.done
		return nil
	}
	l.index.Stop()
	w.frames.end()
	close(w.life.stop)
	<-w.life.done
	return errors.Join(w.finish(), l.Reader.Close(), boltfile.Unlock(l.lock))
}
