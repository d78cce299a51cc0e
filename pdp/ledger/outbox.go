package ledger

import (
	"context"
	"fmt"
	"iter"
)

// outboxed is the value of a step in the outbox.
type outboxed[S Step] struct {
	Origin string `json:"origin,omitzero"`
	Step   S      `json:"step"`
}

// entry is a step in the outbox.
type entry[S Step] struct {
	Entry
	key    string
	step   S
	origin string
	brief  bool // as it was read: it was tried before, and may be on record
}

// outbox goes through the steps that may not be on record yet, of one item or of all.
func outbox[S Step](tx *Tx, id string) iter.Seq[*entry[S]] {
	prefix := tx.form.of(prefixOutbox)
	if id != "" {
		prefix += id + "/"
	}
	return func(yield func(*entry[S]) bool) {
		for key, read := range tx.Scan(prefix, "") {
			var o outboxed[S]
			if !read(&o) || !yield(&entry[S]{o.Step.Entry(), prefix + key, o.Step, o.Origin, true}) {
				return
			}
		}
	}
}

// struckSome are entries that are on record, but no more than so many.
func (l *Ledger[I, S]) struckSome(most int) (keys []string) {
	for key := range l.struck.Range {
		if len(keys) >= most {
			break
		}
		keys = append(keys, key.(string))
	}
	return keys
}

// strike removes the entries that are on record.
func (l *Ledger[I, S]) strike(ctx context.Context) error {
	return l.Again(ctx, func() (err error) {
		for err == nil && len(l.struckSome(1)) > 0 {
			_, err = l.Update(func(*Change[S]) {})
		}
		return err
	})
}

// unrecorded goes through the steps of an item, or of all items, that are not on record, as far as this process knows.
func (l *Ledger[I, S]) unrecorded(tx *Tx, id string) iter.Seq[*entry[S]] {
	return func(yield func(*entry[S]) bool) {
		for e := range outbox[S](tx, id) {
			if _, is := l.struck.Load(e.key); !is && !yield(e) {
				return
			}
		}
	}
}

// Unrecorded reports whether an item counts for nothing until a step of it is on record.
func (l *Ledger[I, S]) Unrecorded(tx *Tx, id string) bool {
	for e := range l.unrecorded(tx, id) {
		if !e.Settles {
			return true
		}
	}
	return false
}

// UnrecordedItems are the items of which not all steps are on record, in the order of their ids.
func (l *Ledger[I, S]) UnrecordedItems(tx *Tx) (items []Notice) {
	for e := range l.unrecorded(tx, "") {
		if n := len(items); n == 0 || items[n-1].ID != e.Item {
			items = append(items, e.notice())
		}
	}
	return items
}

func (e Entry) notice() Notice { return Notice{Tenant: e.Tenant, Caller: e.Caller, ID: e.Item} }

// waiting are the steps of an item that are still to be put on record here. If one is on its way to the log of another
// origin, the item does not count.
func (l *Ledger[I, S]) waiting(tx *Tx, id string) (entries []*entry[S]) {
	for e := range l.unrecorded(tx, id) {
		switch {
		case e.origin == l.options.Origin:
			entries = append(entries, e)
		case !e.Settles:
			tx.Fail(fmt.Errorf("%w: it is to be recorded by %s", ErrUnrecorded, e.origin))
		}
	}
	return entries
}

// record puts on record steps of an item, in their order. The lock of the item is held.
func (l *Ledger[I, S]) record(ctx context.Context, item I, entries []*entry[S]) error {
	if len(entries) == 0 {
		return nil
	}
	for _, e := range entries {
		if err := l.recordStep(ctx, item, e); err != nil {
			return fmt.Errorf("%w: %w", ErrUnrecorded, err)
		}
		l.struck.Store(e.key, true)
	}
	if l.engine.Shared() { // others wait for that
		if err := l.strike(ctx); err != nil {
			l.options.OnError(err)
		}
	}
	l.post([]Notice{entries[0].notice()})
	return nil
}

// recordStep puts a step on record. Once begun it is not cancelled: while a record is on its way, it is not known that
// it will not come. A second try, or one after a restart, asks the log first, because the step may be on record
// already.
func (l *Ledger[I, S]) recordStep(ctx context.Context, item I, e *entry[S]) error {
	step := e.step
	if e.brief {
		if known, err := l.options.Log.Recorded(e.ID); err != nil || known {
			return err
		}
		step = l.options.Rules.Whole(step, item)
	}
	return l.options.Log.Record(context.WithoutCancel(ctx), step)
}
