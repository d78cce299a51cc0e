package ledger

import (
	"context"
	"encoding/binary"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
)

// Unrecorded reports whether an item counts for nothing until a step of it is on record.
func (l *Ledger[I, S]) Unrecorded(id string) bool {
	return slices.ContainsFunc(l.memory.Load().stepsOf(id), func(e *entry[S]) bool { return !e.Settles })
}

// UnrecordedItems are the ids of the items of which not all steps are on record, in their order: of those for which a
// function says so, which must be quick.
func (l *Ledger[I, S]) UnrecordedItems(of func(Notice) bool) []string {
	return l.memory.Load().unrecorded(of)
}

// record puts on record the steps of an item that are not, in their order. The lock of the item is held.
func (l *Ledger[I, S]) record(ctx context.Context, id string) error {
	entries := l.memory.Load().stepsOf(id)
	for _, e := range entries {
		if err := l.recordStep(ctx, e); err != nil {
			return fmt.Errorf("%w: %w", ErrUnrecorded, err)
		}
		l.memory.Load().recorded(e)
	}
	if len(entries) > 0 {
		l.post([]Notice{entries[0].notice()})
	}
	return nil
}

// recordStep puts a step on record. Once begun it is not cancelled: while a record is on its way, it is not known that
// it will not come. A second try, or one after a restart, asks the log first, because the step may be on record
// already.
func (l *Ledger[I, S]) recordStep(ctx context.Context, e *entry[S]) error {
	step := e.step
	e.step = nil
	if step == nil {
		if known, err := l.options.Log.Recorded(e.ID); err != nil || known {
			return err
		}
		step = new(S)
		if err := l.View(func(tx *Tx) {
			if !tx.Get(bucketOutbox, numberKey(e.number), step) {
				tx.Fail(fmt.Errorf("%w: step %d of %s is missing", l.options.Form.Errors.Damaged, e.number, e.Item))
			}
		}); err != nil {
			return err
		}
	}
	return l.options.Log.Record(context.WithoutCancel(ctx), *step)
}

// strike removes from the outbox what is on record. Any transaction does that; if there is none, it is done for its own
// sake.
func (l *Ledger[I, S]) strike(context.Context) error {
	if len(l.memory.Load().toStrike()) == 0 {
		return nil
	}
	return l.Update(func(*Change[S]) {})
}

// memory is what the ledger knows without reading the file. It is made anew whenever the file is opened, so nothing in
// it is known by it alone.
type memory[S Step] struct {
	mu     sync.Mutex
	live   set                    // the open items: those that were held against the log, or changed since
	outbox map[string][]*entry[S] // by item, in the order of their numbers
	struck []uint64               // of the outbox, on record: the next transaction removes them
}

// entry is a step in the outbox.
type entry[S Step] struct {
	Entry
	number uint64
	step   *S // nil once it was tried: then it may be on record
}

// load makes memory from the file. At the first opening it leaves the open items to reconcile, so that they are read
// once: there may be very many.
func (l *Ledger[I, S]) load(tx *Tx) {
	m := &memory[S]{live: set{}, outbox: map[string][]*entry[S]{}}
	open := OpenItems[I](tx)
	for _, item := range open {
		m.live[item.Standing().ID] = true
	}
	for number, step := range Outbox[S](tx) {
		m.expect([]*entry[S]{{Entry: step.Entry(), number: number}})
	}
	l.options.Rules.Remember(tx, open)
	if tx.err == nil && l.memory.Swap(m) == nil {
		l.unreconciled = open
	}
}

// Outbox goes through the steps of a file that may not be on record yet, by their numbers.
func Outbox[S Step](tx *Tx) iter.Seq2[uint64, S] {
	return func(yield func(uint64, S) bool) {
		for key, read := range tx.Scan(bucketOutbox, nil) {
			var step S
			if read(&step) && !yield(binary.BigEndian.Uint64(key), step) {
				return
			}
		}
	}
}

func (e Entry) notice() Notice { return Notice{Tenant: e.Tenant, Caller: e.Caller, ID: e.Item} }

// apply takes in a committed change.
func (m *memory[S]) apply(saved []Standing, struck int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, is := range saved {
		if m.live[is.ID] = is.Open; !is.Open {
			delete(m.live, is.ID)
		}
	}
	m.struck = m.struck[struck:]
}

func (m *memory[S]) isLive(id string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.live[id]
}

// liveOnes are the ids of the live items, in their order.
func (m *memory[S]) liveOnes() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.live))
}

// unrecorded are the ids of the items with steps in the outbox, in their order: of those for which a function says so.
func (m *memory[S]) unrecorded(of func(Notice) bool) (ids []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, entries := range m.outbox { // no list is empty
		if of(entries[0].notice()) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// expect adds to the outbox.
func (m *memory[S]) expect(entries []*entry[S]) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range entries {
		m.outbox[e.Item] = append(m.outbox[e.Item], e)
	}
}

// recorded strikes an entry off.
func (m *memory[S]) recorded(e *entry[S]) {
	m.mu.Lock()
	defer m.mu.Unlock()
	left := slices.DeleteFunc(m.outbox[e.Item], func(o *entry[S]) bool { return o.number == e.number })
	if m.outbox[e.Item] = left; len(left) == 0 {
		delete(m.outbox, e.Item)
	}
	m.struck = append(m.struck, e.number)
}

// stepsOf are the steps of an item in the outbox.
func (m *memory[S]) stepsOf(id string) []*entry[S] {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.outbox[id])
}

// toStrike are the entries that the next transaction removes.
func (m *memory[S]) toStrike() []uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.struck)
}
