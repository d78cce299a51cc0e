// Package ledger keeps state that counts only once it is on record. Its owner has rules for items, such as approvals;
// the ledger has the parts that all such owners need:
//
//   - Values, each of them sealed with a key, in an [Engine]: a [Tx] reads them, a [Change] reads and writes.
//   - An outbox. The steps that a change takes are written in the transaction of the change. They are put on the log in
//     their order, and only then does the item count.
//   - Reservations. A use of an item is reserved durably, then the decision that uses it is recorded, then the use is
//     spent, and only then may the decision be answered. If the process ends in between, the log is asked whether the
//     decision is on record. If another process has taken the use meanwhile, the decision is withdrawn.
//   - The comparison with the log at every start. The values may be an older copy, and the log knows better.
//   - A loop that does due work, and work that failed before ([Ledger.Run]).
//   - News for callers that wait for a change ([Bulletin]).
//
// Start with [New] and [Ledger.Open]. The owner implements [Rules], and [Options] say where the log is.
//
// Other processes may write to the same engine, each with a log of its own, whose name is its origin. What was read may
// have changed when it is written. Then the change is refused with [ErrConflict], and [Ledger.Again] has the whole run again.
// No process knows what another did but by what it reads of the engine.
//
// The package knows no log, no policy and no HTTP. It gives an item no meaning, and it never decides that a
// reservation is old enough to be given up: only the log can say that.
package ledger

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"policy-service/pdp/internal/keyedmutex"
)

// Item is a value that a ledger keeps for its owner.
type Item interface {
	Standing() Standing
	// Settled reports whether the reservation of a decision, by its name, ended in a use. An item may forget that after some
	// more uses.
	Settled(decision string) bool
}

// Standing is the part of an item that the ledger knows.
type Standing struct {
	ID     string
	Tenant string
	// Caller asked for the item. News are chosen by it.
	Caller string
	// Open says that the item can change, or that something of it can be reserved. Ends is when that ends by itself, or
	// when it ended.
	Open bool
	Ends time.Time
	// After is how long the log of an origin was when it wrote the item. Later changes of it stand there or behind.
	After  uint64
	Origin string
	// Reserved are the uses that decisions are to have, which may be on record or not.
	Reserved []Reserved
	// By are the records that it counts by, and the origins whose logs have them. If an origin has no name, its records are
	// not among them.
	By map[string]string
	// Revision is of what was read, and 0 of an item that is new.
	Revision uint64
}

// Reserved is a use of an item that a decision is to have. Only the log of its origin says whether it has it.
type Reserved struct{ Decision, Origin string }

// Step is the part of a change that goes on record.
type Step interface {
	Entry() Entry
}

// Entry is the part of a step that the ledger knows.
type Entry struct {
	ID     string // of the record
	Item   string
	Tenant string
	Caller string // as of [Standing]
	// Settles says that the step is the outcome of a reservation. The item counts before such a step is on record,
	// and waits for the record of any other step.
	Settles bool
	// Proves are the records that the item may count by from the step on. See [Standing].By.
	Proves []string
}

// Outcome is the end of a reservation: the decision used the item, or it is not on record and will not be.
type Outcome struct {
	Decision string
	Used     bool
	// Looked says that the log was asked, and not the caller that made the reservation.
	Looked bool
	// Lost is the origin of the reservation if its log will never say anything any more.
	Lost string
}

// Rules are the owner's part. The item that a method is given is locked, and all its steps are on record. A method that
// writes it may return [ErrConflict].
type Rules[I Item, S Step] interface {
	// Read reads an item, and reports whether there is one. State reads what of it may change, and no more.
	Read(r Reader, id string) (item I, found bool)
	State(r Reader, id string) (item I, found bool)
	// Whole is a step of an item, as Read has it, as it is recorded. The outbox has only what Brief leaves of it.
	Whole(step S, item I) S
	Brief(step S) S
	// CatchUp takes from the log the changes of an item that the file does not know. Steps are those since [Standing].After.
	CatchUp(ctx context.Context, item I, steps []S) error
	// Expire ends an item whose time is up.
	Expire(ctx context.Context, item I) error
	// Settle makes a change that notes the outcomes of reservations, and puts nothing on record. It returns the item as it is
	// after that.
	Settle(ctx context.Context, item I, outcomes []Outcome) (I, Made[S], error)
	// Moved is an item of which some records, by their ids, are in the log of another origin now.
	Moved(item I, records []string, origin string) I
	// Save writes an item again, as it is. Forget removes one that ended long ago.
	Save(c *Change[S], item I)
	Forget(c *Change[S], item I)
}

// Withdrawal is a decision that is on record, and that nobody was or will be answered by: its use of an item is not there.
type Withdrawal struct {
	Decision, Item string
	Tenant, Caller string // as of [Standing]
}

// Log is where steps and decisions are recorded.
type Log[S Step] struct {
	// Record puts a step on record and returns when it is durable. After a crash or a failure it is handed the same
	// step again, with the same id, unless Recorded knows of it. Its context does not end.
	Record func(context.Context, S) error
	// Recorded reports whether the record of a step or of a decision is durable. False means that it is not and will
	// not be; an error, that it is unknown now.
	Recorded func(id string) (bool, error)
	// Withdraw puts a withdrawal on record, once for each decision, and returns when the record is durable.
	Withdraw func(context.Context, Withdrawal) error
	// Steps are those that the log has of some items from a length of it on, in its order.
	Steps func(ctx context.Context, from uint64, ids map[string]bool) (map[string][]S, error)
	// Size is how many records the log has.
	Size func() uint64
	// Prove is a record with the proof that it is in this log, for the processes with another one. Not found means that there
	// is none to be given. It may be nil if there are no such processes.
	Prove func(ctx context.Context, id string) (p Proof, found bool, err error)
}

// Options are what a [Ledger] is given. All must be there, but Origin and Beside.
type Options[I Item, S Step] struct {
	Engine Engine
	Form   Form
	// Origin is the name of the log. It may be "" if no other process writes to the engine.
	Origin string
	Log    Log[S]
	Rules  Rules[I, S]
	Now    func() time.Time
	// Retain is how long items are kept after they ended.
	Retain time.Duration
	// Beside begins the keys of values, by the id of an item, whose change is news of the item.
	Beside string
	// OnError gets the errors that no caller gets.
	OnError func(error)
}

// Ledger keeps items. The caller that changes an item holds its lock until the change is on record: within one process
// nobody else tries meanwhile. What other processes do, the engine compares.
type Ledger[I Item, S Step] struct {
	*Bulletin
	options Options[I, S]
	engine  Engine
	locks   keyedmutex.Mutex
	wake    chan struct{} // has room for one: Run has something to look at
	struck  struck
	names   []naming // that the values have, the one of this opening last
	unwatch func()
	// lookedForLost is when SettleAllLost last looked.
	lookedForLost time.Time
	// settling are the uses that are settled, and whose outcomes are not on record yet.
	settling sync.WaitGroup
	doubts   doubts
}

// New makes a ledger, which is to be opened.
func New[I Item, S Step](o Options[I, S]) *Ledger[I, S] {
	o.Form.ready()
	return &Ledger[I, S]{
		struck:   struck{inside: map[string]proving{}, gone: [2]map[string]bool{{}, {}}},
		Bulletin: &Bulletin{readers: map[*News]chan<- struct{}{}},
		options:  o,
		engine:   o.Engine,
		wake:     make(chan struct{}, 1),
	}
}

// Open opens the engine. What was in doubt when the last process ended is settled as far as it can be now;
// [Ledger.Run] does the rest.
func (l *Ledger[I, S]) Open(ctx context.Context) error {
	err := l.engine.Open()
	if err != nil {
		return err
	}
	l.unwatch = l.engine.Watch(l.changed)
	var open []I
	if err = l.Again(ctx, l.begin); err == nil {
		err = l.View(func(tx *Tx) { open = l.options.check(tx) })
	}
	if err == nil {
		err = l.Again(ctx, l.name) // before anything else is written: it says which revisions the last opening had
	}
	if err == nil {
		err = l.reconcile(ctx, open)
	}
	if err != nil {
		l.unwatch()
		return errors.Join(err, l.engine.Close())
	}
	if err := errors.Join(l.Erase(ctx), l.catchUp(ctx)); err != nil {
		l.options.OnError(err)
	}
	return nil
}

// check reads what an opening reads: the open items, in the order of their ids, and the outbox.
func (o *Options[I, S]) check(tx *Tx) (open []I) {
	open = o.openItems(tx)
	for range outbox[S](tx, "", func(string) bool { return false }) {
	}
	return open
}

// Look reads the values of an engine as [Ledger.Open] would, and changes nothing. The error is the one with which Open
// would fail. If there is no log, its Size is nil.
func Look[I Item, S Step](s State, o Options[I, S], read func(*Tx)) error {
	o.Form.ready()
	return o.Form.in(func(tx *Tx) {
		if tx.Format() == 0 {
			return
		}
		open := o.check(tx)
		if o.Log.Size != nil {
			o.since(tx, open)
		}
		read(tx)
	})(s)
}

// Close closes the engine. Steps that are not on record yet are put there after the next Open.
func (l *Ledger[I, S]) Close() error {
	ctx := context.Background()
	l.Settled()
	_ = l.strike(ctx) // or they are looked up once more
	if open, err := l.openItems(); err == nil {
		_ = l.advance(ctx, 1, open) // or more of the log is held against them
	}
	l.unwatch()
	return l.engine.Close()
}

// Erase leaves no byte of what changes with [Change.Erase] took away, nor of steps that are on record.
func (l *Ledger[I, S]) Erase(ctx context.Context) error {
	if err := l.strike(ctx); err != nil {
		return err
	}
	return l.engine.Erase()
}

// View runs a function on one state of the values.
func (l *Ledger[I, S]) View(f func(*Tx)) error { return l.engine.View(l.options.Form.in(f)) }

// Ready opens again what had to be closed after a failure. Callers that only read do not call it, as there are many of
// them.
func (l *Ledger[I, S]) Ready(context.Context) error { return l.engine.Ready() }

// Lock locks a name: the id of an item, or of another thing that is not to change meanwhile.
func (l *Ledger[I, S]) Lock(ctx context.Context, name string) (release func(), err error) {
	if release, err = l.locks.Lock(ctx, name); err != nil {
		err = fmt.Errorf("%w: %w", l.options.Form.Errors.Unavailable, err)
	}
	return release, err
}

// mostTries is how often Again runs a function at most.
const mostTries = 10

// Again runs a function, which reads, computes and writes, and runs it again as a whole whenever another process changed
// meanwhile what it had read.
func (l *Ledger[I, S]) Again(ctx context.Context, do func() error) error {
	for try := range mostTries {
		err := do()
		if !errors.Is(err, ErrConflict) {
			return err
		}
		select {
		case <-time.After(rand.N(time.Millisecond << try)):
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", l.options.Form.Errors.Unavailable, ctx.Err())
		}
	}
	return fmt.Errorf("%w: %w, %d times", l.options.Form.Errors.Unavailable, ErrConflict, mostTries)
}

// Again is [Ledger.Again] of something that makes a value.
func Again[T any, I Item, S Step](ctx context.Context, l *Ledger[I, S], do func() (T, error)) (made T, err error) {
	err = l.Again(ctx, func() (err error) {
		made, err = do()
		return err
	})
	return made, err
}

// Locked reads an item. Nobody else in this process changes it before release, and all its steps are on record.
func (l *Ledger[I, S]) Locked(ctx context.Context, id string) (item I, release func(), err error) {
	if release, err = l.Lock(ctx, id); err != nil {
		return item, nil, err
	}
	if err = l.Ready(ctx); err == nil {
		item, err = l.current(ctx, id)
	}
	if err != nil {
		release()
	}
	return item, release, err
}

// current reads an item whose lock is held, with all its steps on record.
func (l *Ledger[I, S]) current(ctx context.Context, id string) (item I, err error) {
	for {
		var waiting []*entry[S]
		err = l.View(func(tx *Tx) {
			item, waiting = l.read(tx, id), l.waiting(tx, id)
			if is := item.Standing(); is.Open && !l.Listed(tx, is) {
				tx.Fail(fmt.Errorf("%w: %q is open, and not listed so: it was never held against the log",
					l.options.Form.Errors.Damaged, id))
			}
		})
		if err != nil || len(waiting) == 0 {
			return item, err
		}
		if err = l.record(ctx, item, waiting); err != nil {
			return item, err
		}
	}
}

// Listed reports whether the values list an open item as open. An opening holds those that are listed against the log.
func (l *Ledger[I, S]) Listed(r Reader, is Standing) bool {
	return is.Open && r.Get(l.options.Form.due(is), new(bool)) > 0
}

func (l *Ledger[I, S]) read(tx *Tx, id string) I {
	item, found := l.options.Rules.Read(tx, id)
	if !found {
		tx.Fail(l.options.Form.Errors.NotFound)
	}
	return item
}

// Read reads an item as the engine has it, be it on record or not.
func (l *Ledger[I, S]) Read(id string) (item I, err error) {
	err = l.View(func(tx *Tx) { item = l.read(tx, id) })
	return item, err
}

// Made is a change that was made.
type Made[S Step] struct {
	Revision uint64
	entry    *entry[S] // nil if it has no steps
}

// Update runs a function that reads and writes, and returns when what it wrote is durable. After an error of the
// function, or after a write that cannot be done, nothing happened; nor after [ErrConflict]. After any other error it may
// have happened or not. If it has steps, they are still to be put on record: see [Ledger.Record].
func (l *Ledger[I, S]) Update(f func(*Change[S])) (made Made[S], err error) {
	if err := l.engine.Ready(); err != nil {
		return made, err
	}
	c := &Change[S]{Size: l.options.Log.Size(), Origin: l.options.Origin, brief: func(s S) S { return l.options.Rules.Brief(s) }}
	c.t, c.read = Transaction{If: map[string]uint64{}, Puts: map[string][]byte{}}, map[string]Meta{}
	err = l.View(func(tx *Tx) {
		c.tx = tx
		f(c)
		c.putSteps()
	})
	if err != nil {
		return made, err
	}
	gone := l.struck.some(MostKeys - len(c.t.If) - len(c.t.Puts))
	for _, key := range gone {
		c.t.Puts[key] = nil
	}
	made.entry = c.entry
	if made.Revision, err = l.engine.Write(c.t); err != nil {
		return made, err
	}
	l.struck.removed(gone)
	if c.entry == nil { // else it counts when they are on record, and is news then
		l.post(c.news)
	}
	return made, nil
}

// Change is [Ledger.Update] of a change without steps, by [Ledger.Again].
func (l *Ledger[I, S]) Change(ctx context.Context, f func(*Change[S])) error {
	return l.Again(ctx, func() error {
		_, err := l.Update(f)
		return err
	})
}

// Record puts the steps of a change on record, whose item is locked since before the change. The change counts if this
// returns nil.
func (l *Ledger[I, S]) Record(ctx context.Context, item I, made Made[S]) error {
	select {
	case l.wake <- struct{}{}:
	default: // Run looks anyway
	}
	if made.entry == nil {
		return nil
	}
	var entries []*entry[S] // with those of changes before, if there are any
	known := func(key string) bool { return key >= made.entry.key || l.struck.has(key) }
	err := l.View(func(tx *Tx) {
		for e := range outbox[S](tx, item.Standing().ID, known) {
			if e.Origin == l.options.Origin {
				entries = append(entries, e)
			}
		}
	})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnrecorded, err)
	}
	if len(entries) > 0 {
		if item, err = l.Read(item.Standing().ID); err != nil {
			return fmt.Errorf("%w: %w", ErrUnrecorded, err)
		}
	}
	return l.record(ctx, item, append(entries, made.entry))
}
