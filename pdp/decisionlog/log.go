package decisionlog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"policy-service/pdp/boltfile"
	"policy-service/pdp/decisionlog/index"
	"policy-service/pdp/plainfile"
)

// Log is an open log: one writer, and all the reading of [Reader].
//
// [Log.Append] hands what is to be recorded to the writer's goroutine, [writer.run],
// which puts all that waits into one transaction ([writer.transact]). If that
// fails the file is closed, and nothing is answered before it was opened again
// and checked ([writer.recover]).
type Log struct {
	*Reader
	writer   *writer
	index    *index.Index
	removals removals
	lock     *os.File
}

// Open opens the log in a data directory, or creates it.
func Open(data string, options Options) (*Log, error) {
	if options = options.withDefaults(); options.Mode != Strict && options.Mode != BestEffort {
		return nil, fmt.Errorf("there is no mode %q: try %s or %s", options.Mode, Strict, BestEffort)
	}
	r := &Reader{data: data}
	l := &Log{Reader: r, writer: newWriter(r, options)}
	l.index = index.New(data, l, index.Options{RetryEvery: options.RetryEvery, OnError: options.On.Failure})
	l.removals = removals{log: l, contents: map[uint64]int64{}}
	if err := l.open(); err != nil {
		l.abandon()
		return nil, fmt.Errorf("opening the decision log: %w", err)
	}
	go l.writer.run()
	l.writer.digests.start()
	err := errors.Join(l.index.Sweep(), l.removals.finish(context.Background()))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("opening the decision log: %w", err), l.Close())
	}
	if options.Index {
		l.index.Start()
	}
	return l, nil
}

func (l *Log) open() (err error) {
	if err := os.MkdirAll(filepath.Join(l.data, LogDir), 0o700); err != nil {
		return err
	}
	if err := l.takeLock(); err != nil {
		return err
	}
	crashed, err := l.writer.openTail()
	if err == nil {
		err = l.writer.checkEdge()
	}
	if err == nil && crashed {
		err = l.writer.record(EventCrash, map[string]any{"size": l.writer.tail.edge.size})
	}
	return err
}

// takeLock takes the lock of the log's directory. bbolt's own is on the active segment, and
// would let a second writer in while the first one rotates.
func (l *Log) takeLock() (err error) {
	// One open for writing keeps a file system from being remounted.
	if l.lock, err = plainfile.OpenFile(filepath.Join(l.data, LockFile), os.O_CREATE|os.O_RDONLY, 0o600); err != nil {
		return err
	}
	if err = boltfile.Lock(l.lock, true, l.writer.options.LockTimeout); errors.Is(err, boltfile.ErrLocked) {
		return ErrLocked
	}
	return err
}

// abandon lets go of everything, whatever state it is in.
func (l *Log) abandon() {
	l.writer.letGo()
	_ = l.Reader.Close()
	if l.lock != nil {
		_ = l.lock.Close()
	}
}

// Append puts entries on record, together or not at all, and returns the
// sequence of the first. When it returns nil in strict mode they are durable.
// If ctx ends first, or the error is ErrUnavailable, they may be on record
// or not: nothing may be answered that depends on it. All entries have the same caller. If
// that caller is at a bound, the error is a [*RoomError]; see [Log.Limit].
func (l *Log) Append(ctx context.Context, entries []Entry) (first uint64, err error) {
	if len(entries) == 0 {
		return 0, nil
	}
	w := l.writer
	c := &call{at: w.options.Now(), caller: entries[0].Caller}
	wait, refusable := w.options.Mode == Strict, true
	for _, e := range entries {
		if e.ID == "" {
			e.ID = w.options.NewID()
		}
		p, err := prepare(e, w.options.Kinds)
		if err != nil {
			return 0, err
		}
		c.entries = append(c.entries, p)
		c.size += int64(len(p.body) + len(p.id))
		wait, refusable = wait || e.waits(), refusable && e.refusable()
	}
	if c.size > MaxAppend {
		return 0, fmt.Errorf("%d records of together %d bytes: %w", len(entries), c.size, ErrTooLarge)
	}
	c.weight = weigh(c.entries)
	c.payer, err = w.accounts.take(cmp.Or(entries[0].Payer, entries[0].Caller), c.weight, refusable)
	if err != nil {
		return 0, err
	}
	c.taken = true
	if !wait {
		return 0, w.offer(c)
	}
	if err := w.submit(ctx, c); err != nil {
		return 0, err // c is the writer's still
	}
	return c.first, nil
}

// Flush returns when what was handed over before is on record, also records that no
// caller waits for in best effort.
func (l *Log) Flush(ctx context.Context) error {
	return l.writer.order(ctx, func() error { return nil })
}

// Beyond waits until the log has more records than size. A follower of the log then
// reads them with [Reader.Records]. They are durable.
func (l *Log) Beyond(ctx context.Context, size uint64) error {
	for {
		grown := *l.writer.grown.Load() // before the size is read: what comes after that closes this one
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
		<-w.done
		return nil
	}
	l.index.Stop()
	w.digests.stop()
	close(w.stop)
	<-w.done
	return errors.Join(w.finish(), l.Reader.Close(), l.lock.Close())
}
