package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// reconcile holds every open item against the log: the file may be an older copy, or parts of it. What the log knows
// better is taken from there. It is done before anything else is. At its end the items that know of the log only up to
// advanceBy records ago are saved as of now.
func (l *Ledger[I, S]) reconcile(ctx context.Context) error {
	open := l.unreconciled
	l.unreconciled = nil
	steps, err := Since(ctx, open, l.options.Log)
	if err != nil {
		return err
	}
	for _, item := range open {
		err := l.options.Rules.CatchUp(ctx, item, steps[item.Standing().ID])
		if err != nil && !errors.Is(err, ErrUnrecorded) { // until it is on record it counts for nothing
			return err
		}
	}
	return l.advance(open, advanceBy)
}

// advanceBy is how many records the log may have grown by at a start before the open items say again that they know of
// all of them. advanceAt is how many do so in one transaction.
const (
	advanceBy = 100_000
	advanceAt = 1000
)

// advance has the next opening hold less against the log: all changes of the open items until now are in the file. At an
// orderly end all do. A record that goes after that, by redaction or retention, is none that they do not know of. Each
// is read again as it is saved, because it may have changed since open was read.
func (l *Ledger[I, S]) advance(open []I, by uint64) error {
	live := l.memory.Load()
	size := l.options.Log.Size()
	open = slices.DeleteFunc(open, func(item I) bool {
		is := item.Standing()
		// The record of a use in doubt may stand before.
		return !live.isLive(is.ID) || is.After+by > size || len(is.Reserved) > 0
	})
	for some := range slices.Chunk(open, advanceAt) {
		err := l.Update(func(c *Change[S]) {
			for _, item := range some {
				now, _ := GetItem[I](c.Tx, item.Standing().ID)
				if is := now.Standing(); is.Open && len(is.Reserved) == 0 {
					l.options.Rules.Save(c, now)
				}
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (l *Ledger[I, S]) openItems() (open []I, err error) {
	err = l.View(func(tx *Tx) { open = openOf[I](tx, l.memory.Load().liveOnes()) })
	return open, err
}

// set is a set of ids.
type set = map[string]bool

// Since are the steps of open items that the log has and the file does not. It refuses a log that ends before what
// the file knows of it. Whatever people say from here on would stand where they said something else before, and a copy
// of the file of then would pass for a newer one.
func Since[I Item, S Step](ctx context.Context, open []I, log Log[S]) (steps map[string][]S, err error) {
	size := log.Size()
	ids, from := set{}, size
	for _, item := range open {
		is := item.Standing()
		if is.After > size {
			return nil, fmt.Errorf("%w: %q is of when the log had %d records, and it has %d; "+
				"put the right log back, or this file away", ErrShort, is.ID, is.After, size)
		}
		from, ids[is.ID] = min(from, is.After), true
	}
	if len(open) > 0 {
		steps, err = log.Steps(ctx, from, ids)
	}
	return steps, err
}
