package ledger

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
)

// outboxed is a value of the outbox: the steps of one change.
type outboxed[S Step] struct {
	Origin string `json:"origin,omitzero"`
	Steps  []S    `json:"steps"`
}

// entry is the steps of one change of an item, in the outbox.
type entry[S Step] struct {
	outboxed[S]
	key   string
	brief bool // as it was read: each step was tried before, and may be on record
}

// of is the part of the first step that the ledger knows. Each change has steps of one item.
func (e *entry[S]) of() Entry { return e.Steps[0].Entry() }

// settles reports whether all steps are outcomes of reservations.
func (e *entry[S]) settles() bool {
	return !slices.ContainsFunc(e.Steps, func(step S) bool { return !step.Entry().Settles })
}

// outbox goes through the changes whose steps may not be on record yet, of one item or of all. It does not read those whose
// keys are left out.
func outbox[S Step](tx *Tx, id string, leaveOut func(key string) bool) iter.Seq[*entry[S]] {
	prefix := tx.form.of(prefixOutbox)
	if id != "" {
		prefix += id + "/"
	}
	return func(yield func(*entry[S]) bool) {
		for key, read := range tx.Scan(prefix, "") {
			e := &entry[S]{key: prefix + key, brief: true}
			if leaveOut(e.key) {
				continue
			}
			if !read(&e.outboxed) || len(e.Steps) > 0 && !yield(e) {
				return
			}
		}
	}
}

// struck are the entries that this process knows to be on record: they count no more, and the next change removes them. A
// reader that began before that may still find them, so they stay struck for a while.
type struck struct {
	mu     sync.Mutex
	inside map[string]proving
	gone   [2]map[string]bool // the latest first
}

// mostGone is how many entries are removed before those that were removed long ago are forgotten, at the latest.
const mostGone = 10_000

func (s *struck) add(key string, with proving) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inside[key] = with
}

func (s *struck) has(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, inside := s.inside[key]
	return inside || s.gone[0][key] || s.gone[1][key]
}

// some are entries that are to be removed, but no more than so many, and none in whose place proofs may have to be written.
func (s *struck) some(most int) (keys []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, with := range s.inside {
		if len(keys) >= most {
			break
		}
		if len(with.records) == 0 {
			keys = append(keys, key)
		}
	}
	return keys
}

// unproved are the entries in whose place proofs may have to be written.
func (s *struck) unproved() map[string]proving {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := maps.Clone(s.inside)
	maps.DeleteFunc(all, func(_ string, with proving) bool { return len(with.records) == 0 })
	return all
}

func (s *struck) removed(keys []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range keys {
		delete(s.inside, key)
		s.gone[0][key] = true
	}
	if len(s.gone[0]) >= mostGone {
		s.age()
	}
}

// age forgets the entries that were removed before it was called the last time.
func (s *struck) age() { s.gone = [2]map[string]bool{{}, s.gone[0]} }

// ageStruck is done once in a while.
func (l *Ledger[I, S]) ageStruck(context.Context) error {
	l.struck.mu.Lock()
	defer l.struck.mu.Unlock()
	l.struck.age()
	return nil
}

// strike removes the entries that are on record.
func (l *Ledger[I, S]) strike(ctx context.Context) (err error) {
	for key, with := range l.struck.unproved() {
		err = errors.Join(err, l.prove(ctx, with, key))
	}
	return errors.Join(err, l.Again(ctx, func() (err error) {
		for err == nil && len(l.struck.some(1)) > 0 {
			_, err = l.Update(func(*Change[S]) {})
		}
		return err
	}))
}

// unrecorded goes through the steps of an item, or of all items, that are not on record, as far as this process knows.
func (l *Ledger[I, S]) unrecorded(tx *Tx, id string) iter.Seq[*entry[S]] {
	return outbox[S](tx, id, l.struck.has)
}

// Unrecorded reports whether an item counts for nothing until a step of it is on record.
func (l *Ledger[I, S]) Unrecorded(tx *Tx, id string) bool {
	for e := range l.unrecorded(tx, id) {
		if !e.settles() {
			return true
		}
	}
	return false
}

// UnrecordedItems are the items of which not all steps are on record, in the order of their ids.
func (l *Ledger[I, S]) UnrecordedItems(tx *Tx) (items []Notice) {
	for e := range l.unrecorded(tx, "") {
		if n := len(items); n == 0 || items[n-1].ID != e.of().Item {
			items = append(items, e.of().notice())
		}
	}
	return items
}

func (e Entry) notice() Notice { return Notice{Tenant: e.Tenant, Caller: e.Caller, ID: e.Item} }

// waiting are the changes of an item whose steps are still to be put on record here, up to the first that is on its way to the
// log of another origin. If that is the first of all, the item does not count.
func (l *Ledger[I, S]) waiting(tx *Tx, id string) (entries []*entry[S]) {
	for e := range l.unrecorded(tx, id) {
		switch {
		case e.Origin == l.options.Origin:
			entries = append(entries, e)
		case e.settles():
		case len(entries) > 0: // of two origins, each would wait for the other
			return entries
		default:
			tx.Fail(fmt.Errorf("%w, %s", ErrElsewhere, e.Origin))
		}
	}
	return entries
}

// record puts the steps of changes of an item on record, in their order. The lock of the item is held.
func (l *Ledger[I, S]) record(ctx context.Context, item I, entries []*entry[S]) error {
	if len(entries) == 0 {
		return nil
	}
	for _, e := range entries {
		for _, step := range e.Steps {
			if err := l.recordStep(ctx, item, step, e.brief); err != nil {
				return fmt.Errorf("%w: %w", ErrUnrecorded, err)
			}
		}
		l.struck.add(e.key, l.proving(e))
	}
	if l.engine.Shared() { // others wait for that
		if err := l.strike(ctx); err != nil {
			l.options.OnError(err)
		}
	}
	l.post([]Notice{entries[0].of().notice()})
	return nil
}

// recordStep puts a step on record. Once begun it is not cancelled: while a record is on its way, it is not known that
// it will not come. A second try, or one after a restart, asks the log first, because the step may be on record
// already.
func (l *Ledger[I, S]) recordStep(ctx context.Context, item I, step S, brief bool) error {
	if brief {
		if known, err := l.options.Log.Recorded(step.Entry().ID); err != nil || known {
			return err
		}
		step = l.options.Rules.Whole(step, item)
	}
	return l.options.Log.Record(context.WithoutCancel(ctx), step)
}
