// Package ledger keeps state that counts only once it is on record. Its owner has rules for items, such as approvals;
// the ledger has the parts that all such owners need:
//
//   - A file of values, each of them sealed with a key, and transactions on it: a [Tx] reads, a [Change] writes.
//   - An outbox. The steps that a change takes are written in the transaction of the change. They are put on the log in
//     their order, and only then does the item count.
//   - Reservations. A use of an item is reserved durably, then the decision that uses it is recorded, then the use is
//     spent. If the process ends in between, the log is asked whether the decision is on record.
//   - The comparison with the log at every start. The file may be an older copy, and the log knows better.
//   - A loop that does due work, and work that failed before ([Ledger.Run]).
//   - News for callers that wait for a change ([Bulletin]).
//
// Start with [New] and [Ledger.Open]. The owner implements [Rules], and [Options] say where the log is.
//
// The package knows no log, no policy and no HTTP. It gives an item no meaning, and it never decides that a
// reservation is old enough to be given up: only the log can say that.
package ledger

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"policy-service/pdp/keyedmutex"
)

// Item is a value that a ledger keeps for its owner.
type Item interface {
	Standing() Standing
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
	// After is how long the log was when the item was written. Later changes of it stand there or behind.
	After uint64
	// Reserved are the decisions that are to use the item, and may be on record or not.
	Reserved []string
}

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
}

// Outcome is the end of a reservation: the decision used the item, or it is not on record and will not be.
type Outcome struct {
	Decision string
	Used     bool
}

// Rules are the owner's part. The item that a method is given is locked, and all its steps are on record.
type Rules[I Item, S Step] interface {
	// Remember reads the part that the owner keeps in memory. It is given the open items, in the order of their ids. It is called
	// whenever the file is opened, and the file is not read meanwhile.
	Remember(tx *Tx, open []I)
	// CatchUp takes from the log the changes of an item that the file does not know. Steps are those since [Standing].After.
	CatchUp(ctx context.Context, item I, steps []S) error
	// Expire ends an item whose time is up.
	Expire(ctx context.Context, item I) error
	// Settle notes the outcomes of reservations.
	Settle(ctx context.Context, item I, outcomes []Outcome) error
	// Save writes an item again, as it is. Forget removes one that ended long ago.
	Save(c *Change[S], item I)
	Forget(c *Change[S], item I)
}

// Log is where steps and decisions are recorded.
type Log[S Step] struct {
	// Record puts a step on record and returns when it is durable. After a crash or a failure it is handed the same
	// step again, with the same id, unless Recorded knows of it. Its context does not end.
	Record func(context.Context, S) error
	// Recorded reports whether the record of a step or of a decision is durable. False means that it is not and will
	// not be; an error, that it is unknown now.
	Recorded func(id string) (bool, error)
	// Steps are those that the log has of some items from a length of it on, in its order.
	Steps func(ctx context.Context, from uint64, ids map[string]bool) (map[string][]S, error)
	// Size is how many records the log has.
	Size func() uint64
}

// Options are what a [Ledger] is given. All must be there.
type Options[I Item, S Step] struct {
	Form  Form
	Log   Log[S]
	Rules Rules[I, S]
	Now   func() time.Time
	// Retain is how long items are kept after they ended.
	Retain time.Duration
	// OnError gets the errors that no caller gets.
	OnError func(error)
}

// Ledger keeps items. The caller that changes an item holds its lock until the change is on record.
type Ledger[I Item, S Step] struct {
	*Bulletin
	options      Options[I, S]
	file         file
	locks        keyedmutex.Mutex
	wake         chan struct{} // has room for one: Run has something to look at
	memory       atomic.Pointer[memory[S]]
	unreconciled []I // the open items as Open read them, until they are held against the log
}

// New makes a ledger, which is to be opened.
func New[I Item, S Step](o Options[I, S]) *Ledger[I, S] {
	l := &Ledger[I, S]{Bulletin: &Bulletin{readers: map[*News]chan<- struct{}{}}, options: o, wake: make(chan struct{}, 1)}
	l.file = file{form: o.Form, load: l.load}
	return l
}

// Open opens the file, or creates it. What was in doubt when the last process ended is settled as far as it can be now;
// [Ledger.Run] does the rest.
func (l *Ledger[I, S]) Open(ctx context.Context) error {
	err := os.MkdirAll(filepath.Dir(l.options.Form.Path), 0o700)
	if err == nil {
		err = l.file.open()
	}
	if err == nil {
		err = l.reconcile(ctx)
	}
	if err != nil {
		return l.options.Form.opening(errors.Join(err, l.file.letGo(err)))
	}
	if err := errors.Join(l.file.erase(), l.catchUp(ctx)); err != nil {
		l.options.OnError(err)
	}
	return nil
}

// Close closes the file. Steps that are not on record yet are put there after the next Open.
func (l *Ledger[I, S]) Close() error {
	_ = l.strike(context.Background()) // or it is looked up once more
	if open, err := l.openItems(); err == nil {
		_ = l.advance(open, 1) // or more of the log is
	}
	return l.file.close()
}

// Erase writes the file anew if a change asked for that. Others read and write meanwhile as ever.
func (l *Ledger[I, S]) Erase() error { return l.file.erase() }

// View runs a function in a transaction that reads. What the function keeps of it must be copied.
func (l *Ledger[I, S]) View(f func(*Tx)) error { return l.file.view(f) }

// Ready opens the file again if that did not go well before. Callers that only read do not call it, as there are many
// of them.
func (l *Ledger[I, S]) Ready(context.Context) error { return l.file.ready() }

// Lock locks a name: the id of an item, or of another thing that is not to change meanwhile.
func (l *Ledger[I, S]) Lock(ctx context.Context, name string) (release func(), err error) {
	if release, err = l.locks.Lock(ctx, name); err != nil {
		err = fmt.Errorf("%w: %w", l.options.Form.Errors.Unavailable, err)
	}
	return release, err
}

// Locked reads an item. It does not change before release, and all its steps are on record.
func (l *Ledger[I, S]) Locked(ctx context.Context, id string) (item I, release func(), err error) {
	if release, err = l.Lock(ctx, id); err != nil {
		return item, nil, err
	}
	if err = l.Ready(ctx); err == nil {
		item, err = l.current(ctx, id)
	}
	if err == nil && item.Standing().Open && !l.Live(id) {
		err = fmt.Errorf("%w: %q in %s is open, and not listed so: it was never held against the log",
			l.options.Form.Errors.Damaged, id, l.options.Form.Items)
	}
	if err != nil {
		release()
	}
	return item, release, err
}

// current reads an item whose lock is held, with all its steps on record.
func (l *Ledger[I, S]) current(ctx context.Context, id string) (item I, err error) {
	if err = l.record(ctx, id); err == nil {
		item, err = l.Read(id)
	}
	return item, err
}

// Read reads an item as the file has it, be it on record or not.
func (l *Ledger[I, S]) Read(id string) (item I, err error) {
	err = l.View(func(tx *Tx) {
		found := false
		if item, found = GetItem[I](tx, id); !found {
			tx.Fail(l.options.Form.Errors.NotFound)
		}
	})
	return item, err
}

// Update runs a function in a transaction that writes, and returns when that is durable. After an error of the
// function, or after a write that cannot be done, nothing happened. After any other error it may have happened or not;
// the file is opened and read again.
func (l *Ledger[I, S]) Update(f func(*Change[S])) error {
	c := &Change[S]{}
	err := l.file.update(func(tx *Tx) {
		c.Tx, c.Size = tx, l.options.Log.Size()
		m := l.memory.Load()
		struck := m.toStrike()
		for _, n := range struck {
			c.Delete(bucketOutbox, numberKey(n))
		}
		c.Then(func() { m.apply(c.saved, len(struck)) })
		if f(c); c.err == nil {
			m.expect(c.steps) // before anybody can see the change
		}
	}, func() {
		for _, then := range c.then {
			then()
		}
	})
	if err == nil && len(c.steps) == 0 { // else it counts when they are on record, and is news then
		for _, is := range c.saved {
			c.news = append(c.news, is.notice())
		}
		l.post(c.news)
	}
	return err
}

func (s Standing) notice() Notice { return Notice{Tenant: s.Tenant, Caller: s.Caller, ID: s.ID} }

// Commit makes a change of an item, whose lock the caller holds, and puts its steps on record. The change counts if
// this returns nil.
func (l *Ledger[I, S]) Commit(ctx context.Context, id string, write func(*Change[S])) error {
	err := l.Update(write)
	if err == nil {
		select {
		case l.wake <- struct{}{}:
		default: // Run looks anyway
		}
		err = l.record(ctx, id)
	}
	return err
}

// Live reports whether an item is open, and was held against the log or changed since.
func (l *Ledger[I, S]) Live(id string) bool { return l.memory.Load().isLive(id) }
