package decisionlog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"policy-service/pdp/boltfile"
	"policy-service/pdp/decisionlog/index"
	"policy-service/pdp/plainfile"
)

// Log is an open log: one writer, and all the reading of [Reader].
//
// [Log.Append] hands what is to be recorded to the writer's goroutine, [Log.run],
// which puts all that waits into one transaction ([Log.transact]). When that
// fails the file is closed, and nothing is answered before it was opened again
// and checked ([Log.recover]).
type Log struct {
	*Reader
	options Options
	kinds   map[string]bool
	lock    *os.File

	queue  chan *call
	bytes  *semaphore.Weighted           // of what is in the queue
	shares shares                        // of callers in that
	state  state                         // what others may ask for
	grown  atomic.Pointer[chan struct{}] // closed when there are more records
	stop   chan struct{}
	done   chan struct{}
	ending sync.RWMutex // guards closed; held for reading while something goes into the queue
	closed bool

	index    *index.Index
	accounts *accounts
	digests  *digests

	removing removing

	w writer // the writer's goroutine alone
}

// removing has one redaction or retention at a time, and what they know of segments.
type removing struct {
	sync.Mutex
	retired  uint64           // segments up to this number are retired
	contents map[uint64]int64 // what retention can free of the sealed ones that it has seen
}

// writer is what only the writer's goroutine touches.
type writer struct {
	active  *segment // nil while the log cannot be written
	tail    tail
	key     key
	opened  time.Time // when the active segment was begun
	failed  error
	charged *charges  // of the active segment
	keep    Retention // of which Bytes, LeastAge and Share bound callers
	next    *nextSegment
	tried   time.Time // when a new segment was last tried for, or the failed log
}

// call is what one Append, or one order, wants of the writer.
type call struct {
	entries []prepared
	size    int64
	caller  string
	payer   string // whose account it counts toward
	weight  int64
	taken   bool // it counts already
	at      time.Time
	do      func() error // an order, instead of entries
	first   uint64
	reply   chan error // nil where nobody waits
}

// queueLength is how many calls may wait; how many bytes is an option.
const queueLength = 4096

// Open opens the log in a data directory, or creates it.
func Open(data string, options Options) (*Log, error) {
	l := &Log{
		Reader:   &Reader{data: data},
		options:  options.withDefaults(),
		kinds:    map[string]bool{KindDecision: true, KindSearch: true, KindBatch: true, KindAdmin: true, KindReceipt: true},
		queue:    make(chan *call, queueLength),
		stop:     make(chan struct{}),
		removing: removing{contents: map[uint64]int64{}},
		done:     make(chan struct{}),
	}
	grown := make(chan struct{})
	l.grown.Store(&grown)
	for _, kind := range options.Kinds {
		l.kinds[kind] = true
	}
	l.index = index.New(data, l, index.Options{RetryEvery: l.options.RetryEvery, OnError: l.options.On.Failure})
	l.digests = newDigests(l)
	l.accounts, l.w.charged = newAccounts(l.options.Now, l.options.On.Aged), newCharges()
	l.bytes = semaphore.NewWeighted(l.options.QueueBytes)
	if l.shares.most = callerBytes; l.options.Mode == BestEffort {
		l.shares.most = l.options.QueueBytes / queueShares
	}
	if l.options.Mode != Strict && l.options.Mode != BestEffort {
		return nil, fmt.Errorf("there is no mode %q: try %s or %s", l.options.Mode, Strict, BestEffort)
	}
	if err := l.open(); err != nil {
		l.abandon()
		return nil, fmt.Errorf("opening the decision log: %w", err)
	}
	go l.run()
	l.digests.start()
	err := errors.Join(l.index.Sweep(), l.finishRemovals(context.Background()))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("opening the decision log: %w", err), l.Close())
	}
	if l.options.Index {
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
	crashed, err := l.openTail()
	if err == nil {
		err = l.checkEdge()
	}
	if err != nil {
		return err
	}
	if crashed {
		return l.record(EventCrash, map[string]any{"size": l.w.tail.edge.size})
	}
	return nil
}

// takeLock takes the lock of the log's directory. bbolt's own is on the active segment, and
// would let a second writer in while the first one rotates.
func (l *Log) takeLock() (err error) {
	// One open for writing keeps a file system from being remounted.
	if l.lock, err = plainfile.OpenFile(filepath.Join(l.data, LockFile), os.O_CREATE|os.O_RDONLY, 0o600); err != nil {
		return err
	}
	if err = boltfile.Lock(l.lock, true, l.options.LockTimeout); errors.Is(err, boltfile.ErrLocked) {
		return ErrLocked
	}
	return err
}

// abandon lets go of everything, whatever state it is in.
func (l *Log) abandon() {
	l.letGo()
	_ = l.Reader.Close()
	if l.lock != nil {
		_ = l.lock.Close()
	}
}

// Append puts entries on record, together or not at all, and returns the
// sequence of the first. When it returns nil in strict mode they are durable.
// Where ctx ends first, or the error is ErrUnavailable, they may be on record
// or not: nothing may be answered that depends on it. The error is a [*RoomError]
// where the caller of the entries, which is one, is at a bound; see [Log.Limit].
func (l *Log) Append(ctx context.Context, entries []Entry) (first uint64, err error) {
	if len(entries) == 0 {
		return 0, nil
	}
	c := &call{at: l.options.Now(), caller: entries[0].Caller}
	wait, refusable := l.options.Mode == Strict, true
	for _, e := range entries {
		if e.ID == "" {
			e.ID = l.options.NewID()
		}
		p, err := prepare(e, l.kinds)
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
	if c.payer, err = l.accounts.take(cmp.Or(entries[0].Payer, entries[0].Caller), c.weight, refusable); err != nil {
		return 0, err
	}
	c.taken = true
	if !wait {
		return 0, l.offer(c)
	}
	if err := l.submit(ctx, c); err != nil {
		return 0, err // c is the writer's still
	}
	return c.first, nil
}

// offer hands over what nobody waits for, or counts it as dropped.
func (l *Log) offer(c *call) error {
	l.ending.RLock()
	defer l.ending.RUnlock()
	if l.closed {
		l.accounts.giveBack(c)
		return ErrClosed
	}
	c.size = min(c.size, l.options.QueueBytes)
	if l.hasRoom(c) {
		select {
		case l.queue <- c:
			return nil
		default:
			l.leaves(c)
		}
	}
	l.accounts.giveBack(c)
	l.state.drop(len(c.entries), c.at)
	return nil
}

// submit hands over a call and waits for what becomes of it.
func (l *Log) submit(ctx context.Context, c *call) error {
	c.reply = make(chan error, 1) // so that the writer never waits for who has gone
	c.size = min(c.size, l.options.QueueBytes)
	if err := l.waits(ctx, c); err != nil {
		l.accounts.giveBack(c)
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	if err := l.enqueue(ctx, c); err != nil {
		l.leaves(c)
		l.accounts.giveBack(c)
		return err
	}
	select {
	case err := <-c.reply:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrUnavailable, ctx.Err())
	}
}

func (l *Log) enqueue(ctx context.Context, c *call) error {
	l.ending.RLock()
	defer l.ending.RUnlock()
	if l.closed {
		return ErrClosed
	}
	select {
	case l.queue <- c:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrUnavailable, ctx.Err())
	}
}

// Close writes what waits, makes a last checkpoint and closes the log.
func (l *Log) Close() error {
	l.ending.Lock()
	again := l.closed
	l.closed = true
	l.ending.Unlock()
	if again {
		<-l.done
		return nil
	}
	l.index.Stop()
	l.digests.stop()
	close(l.stop)
	<-l.done
	err := l.finish()
	return errors.Join(err, l.Reader.Close(), l.lock.Close())
}
