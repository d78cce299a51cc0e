package ledger

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// reconcile holds every open item against the log: the values may be an older copy, or parts of it. What the log knows
// better is taken from there. It is done before anything else is. At its end the items that know of the log only up to
// advanceBy records ago are saved as of now.
func (l *Ledger[I, S]) reconcile(ctx context.Context, open []I) error {
	var from uint64
	err := l.View(func(tx *Tx) { from = l.options.since(tx, open) })
	ids, steps := map[string]bool{}, map[string][]S(nil)
	for _, item := range open {
		ids[item.Standing().ID] = true
	}
	if err == nil && len(open) > 0 {
		steps, err = l.options.Log.Steps(ctx, from, ids)
	}
	if err != nil {
		return err
	}
	for _, item := range open {
		id := item.Standing().ID
		err := l.options.Rules.CatchUp(ctx, item, steps[id])
		if errors.Is(err, ErrConflict) {
			err = l.catchUpAgain(ctx, id, steps[id])
		}
		if err != nil && !errors.Is(err, ErrUnrecorded) { // until it is on record it counts for nothing
			return err
		}
	}
	if err := l.advance(ctx, advanceBy, open); err != nil {
		l.options.OnError(err)
	}
	return nil
}

// catchUpAgain catches up with an item that another process has changed meanwhile, perhaps because it caught up itself. Whether
// the other one's change is on record yet makes no difference: the steps are of the log here.
func (l *Ledger[I, S]) catchUpAgain(ctx context.Context, id string, steps []S) error {
	return l.Again(ctx, func() error {
		release, err := l.Lock(ctx, id)
		if err != nil {
			return err
		}
		defer release()
		item, err := l.Read(id)
		if err != nil {
			return err
		}
		return l.options.Rules.CatchUp(ctx, item, steps)
	})
}

// advanceBy is how many records the log may have grown by before items that did not change say again that they know of all
// of them. advanceAt is how many do so in one transaction.
const (
	advanceBy = 100_000
	advanceAt = 50
)

// known is the value of an origin.
type known struct {
	// After is how long the log of the origin was when all that it says of items was here.
	After uint64 `json:"after"`
}

// advance has the next opening hold less against the log. At an orderly end all changes that the log has are here: a
// record that goes after that, by redaction or retention, is none that nobody knows of.
//
// If nobody else writes, each open item says so for itself: who puts back one of them from an older copy has it held
// against the log from then on. If others write, the origin says so for all.
func (l *Ledger[I, S]) advance(ctx context.Context, by uint64, open []I) (err error) {
	if l.engine.Shared() {
		return l.Again(ctx, func() error { return l.advanceOrigin(by) })
	}
	size := l.options.Log.Size()
	behind := func(is Standing) bool { // the record of a use in doubt may stand before
		return is.Open && is.After+by <= size && len(is.Reserved) == 0
	}
	var ids []string
	for _, item := range open {
		if is := item.Standing(); behind(is) {
			ids = append(ids, is.ID)
		}
	}
	for some := range slices.Chunk(ids, advanceAt) {
		if err != nil {
			return err
		}
		err = l.saveAgain(ctx, some, behind)
	}
	return err
}

func (l *Ledger[I, S]) openItems() (open []I, err error) {
	err = l.View(func(tx *Tx) { open = l.options.openItems(tx) })
	return open, err
}

// saveAgain saves some items as they are. If they are too large for one change, it takes more changes.
func (l *Ledger[I, S]) saveAgain(ctx context.Context, ids []string, which func(Standing) bool) error {
	err := l.Change(ctx, func(c *Change[S]) {
		for _, id := range ids {
			if item, found := l.options.Rules.State(c, id); found && which(item.Standing()) {
				l.options.Rules.Save(c, item)
			}
		}
	})
	if half := len(ids) / 2; half > 0 && errors.Is(err, ErrTooMuch) {
		err = l.saveAgain(ctx, ids[:half], which)
		if err == nil {
			err = l.saveAgain(ctx, ids[half:], which)
		}
	}
	return err
}

// advanceOrigin says how long the log was before any reservation was made that is not settled.
func (l *Ledger[I, S]) advanceOrigin(by uint64) error {
	is, key := known{l.options.Log.Size()}, l.options.Form.of(prefixOrigins)+l.options.Origin
	settled := true
	err := l.View(func(tx *Tx) {
		for range tx.Scan(l.options.Form.reserved(l.options.Origin, ""), "") {
			settled = false
			return
		}
	})
	if err != nil || !settled {
		return err
	}
	_, err = l.Update(func(c *Change[S]) {
		var was known
		if c.Get(key, &was); was.After+by <= is.After {
			c.Put(key, is)
		}
	})
	return err
}

// since is the length of the log from which on it is to be held against open items. It refuses a log that ends before what
// is known of it. Whatever people say from here on would stand where they said something else before, and an older copy of
// the values would pass for a newer one.
func (o *Options[I, S]) since(tx *Tx, open []I) (from uint64) {
	size := o.Log.Size()
	within := func(what string, after uint64) {
		if after > size {
			tx.Fail(fmt.Errorf("%w: %q is of when the log had %d records, and it has %d; "+
				"put the right log back, or this file away", ErrShort, what, after, size))
		}
	}
	from = size
	shared := o.Engine != nil && o.Engine.Shared()
	if shared {
		var is known
		tx.Get(o.Form.of(prefixOrigins)+o.Origin, &is)
		within(o.Origin, is.After)
		from = is.After
	}
	for _, item := range open {
		is := item.Standing()
		if is.Origin == o.Origin {
			within(is.ID, is.After)
		}
		if !shared {
			from = min(from, is.After)
		}
	}
	return from
}

// Written are the versions that an item had when the origins wrote it last, by their names: under "" the last one of an origin
// without a name. A step says by its version whether the item knows it, and that holds in one log alone. After a copy was put back,
// the first origin that takes its later steps from its log goes past the versions of those that stand in other logs.
type Written map[string]int

// Last is the version up to which an item, which has a version now, knows the steps in the log of an origin.
func (w Written) Last(origin string, version int) int {
	if w == nil { // there were no others
		return version
	}
	return max(w[origin], w[""])
}

// By has an origin write an item, which had a version, as another one. An origin without a name has no others beside it.
func (w Written) By(origin string, from, to int) Written {
	if origin == "" {
		return w
	}
	next := maps.Clone(w)
	if next == nil {
		next = Written{}
		if from > 0 {
			next[""] = from
		}
	}
	next[origin] = to
	return next
}
