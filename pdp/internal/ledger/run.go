package ledger

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"
)

// Run sleeps so long at most, as the clock may have been set: longer on an engine of many processes, which all ask it, once
// nothing has failed or happened here for a while.
const (
	longestNap       = time.Second
	longestNapShared = 5 * time.Second
)

// Run does due work until its context ends, and work that failed before. More is the work that the owner has
// besides.
func (l *Ledger[I, S]) Run(ctx context.Context, more ...func(context.Context) error) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var latest, awake, worked time.Time // by the machine's clock; worked is by ours
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			worked = l.options.Now()
			done := l.work(ctx, more)
			now := time.Now()
			if latest = now.Add(longestNap); done && l.engine.Shared() && now.After(awake) {
				latest = now.Add(longestNapShared)
			}
		case <-l.wake:
			now := time.Now()
			awake = now.Add(2 * longestNap)
			if soon := now.Add(longestNap); soon.Before(latest) {
				latest = soon
			}
		}
		timer.Reset(min(l.nap(worked), time.Until(latest))) // or a Run that is woken often never works
	}
}

// Work does once the work that Run does whenever some is due.
func (l *Ledger[I, S]) Work(ctx context.Context, more ...func(context.Context) error) {
	l.work(ctx, more)
}

// work reports whether all was done.
func (l *Ledger[I, S]) work(ctx context.Context, more []func(context.Context) error) (done bool) {
	done = true
	more = append([]func(context.Context) error{l.Ready, l.catchUp, l.expireDue, l.forgetOld, l.strike, l.ageStruck}, more...)
	for _, do := range more {
		if ctx.Err() != nil {
			return false
		}
		if err := do(ctx); err != nil && ctx.Err() == nil {
			done = false
			l.options.OnError(err)
		}
	}
	return done
}

// nap is how long nothing will be due. What was due when Run last worked could not be done then, and is tried again
// later.
func (l *Ledger[I, S]) nap(worked time.Time) time.Duration {
	now, nap := l.options.Now(), longestNapShared
	_ = l.View(func(tx *Tx) { // or there is nothing to be done
		for key := range tx.Scan(l.options.Form.of(prefixDue), TimeKey("", worked.Add(1), "")) {
			at, _ := readTimeKey(key)
			nap = max(0, min(nap, at.Sub(now)))
			return
		}
	})
	return nap
}

// catchUp settles reservations and puts steps on record that are not. A caller with the lock of an item does so itself.
func (l *Ledger[I, S]) catchUp(ctx context.Context) error {
	var waiting []string
	reserved := reserving{}
	err := l.View(func(tx *Tx) {
		for e := range l.unrecorded(tx, "") {
			if e.Origin == l.options.Origin {
				waiting = append(waiting, e.of().Item)
			}
		}
		for decision, read := range tx.Scan(l.options.Form.reserved(l.options.Origin, ""), "") {
			var id string
			if read(&id) {
				reserved[id] = append(reserved[id], decision)
			}
		}
	})
	record := func(ctx context.Context, id string) error {
		_, err := l.current(ctx, id)
		return err
	}
	doubtful, _ := l.doubts.all("")
	return errors.Join(err,
		l.each(ctx, slices.Compact(waiting), record),
		l.each(ctx, slices.Sorted(maps.Keys(reserved)), l.settleSome(reserved)),
		l.each(ctx, doubtful, l.resolve))
}

// visit does something with an id that it has the lock of.
type visit = func(ctx context.Context, id string) error

// each does something with the items that are not locked. If it cannot be done with one, it is with the next,
// unless nothing can be written at all. The error is the first.
func (l *Ledger[I, S]) each(ctx context.Context, ids []string, do visit) (first error) {
	known := l.options.Form.Errors
	for _, id := range ids {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		release, ok := l.locks.TryLock(id)
		if !ok {
			continue
		}
		err := l.Again(ctx, func() error { return do(ctx, id) })
		release()
		if !errors.Is(err, known.NotFound) { // or it was forgotten meanwhile
			first = cmp.Or(first, err)
		}
		if errors.Is(err, known.Unavailable) || errors.Is(err, known.Closed) {
			break
		}
	}
	return first
}

func (l *Ledger[I, S]) expireDue(ctx context.Context) error {
	return l.Past(ctx, l.options.Form.of(prefixDue), l.options.Now(), func(ctx context.Context, id string) error {
		item, err := l.current(ctx, id)
		if is := item.Standing(); err != nil || !is.Open || l.options.Now().Before(is.Ends) {
			return err
		}
		return l.options.Rules.Expire(ctx, item)
	})
}

// forgetOld deletes the items that ended longer ago than they are retained. One stays while a use of it is
// reserved, or a step of it is not on record; a later run takes it.
func (l *Ledger[I, S]) forgetOld(ctx context.Context) error {
	return l.Past(ctx, l.options.Form.of(prefixEnded), l.options.Now().Add(-l.options.Retain), func(ctx context.Context, id string) error {
		var item I
		stays, struck := false, []string(nil)
		err := l.View(func(tx *Tx) {
			found := false
			if item, found = l.options.Rules.State(tx, id); !found {
				tx.Fail(l.options.Form.Errors.NotFound)
			}
			for range outbox[S](tx, id, func(key string) bool {
				is := l.struck.has(key)
				if is {
					struck = append(struck, key)
				}
				return is
			}) {
				stays = true
			}
		})
		if err != nil || stays || len(item.Standing().Reserved) > 0 {
			return err
		}
		if err = l.DropProofs(ctx, id); err != nil {
			return err
		}
		_, err = l.Update(func(c *Change[S]) {
			l.options.Rules.Forget(c, item)
			for _, key := range struck { // or nothing would find them any more
				c.Delete(key)
			}
		})
		return err
	})
}

// claim says which process does a kind of work for all, until when unless it says so again.
type claim struct {
	Origin string    `json:"origin"`
	Until  time.Time `json:"until"`
}

// claimed is how long a claim holds. If its process ends, others do the work from then on.
const claimed = 30 * time.Second

// Claim reports whether this process is to do a kind of work for all that write to the engine. It is only for saving work:
// what two do at once is done once, because the second finds a conflict.
func (l *Ledger[I, S]) Claim(work string) (mine bool) {
	if !l.engine.Shared() {
		return true
	}
	now, key := l.options.Now(), prefixClaims+work
	_, err := l.Update(func(c *Change[S]) {
		var is claim
		c.Get(key, &is)
		wrong := is.Until.Sub(now) > 2*claimed // by a clock that was far ahead
		mine = is.Origin == l.options.Origin || !now.Before(is.Until) || wrong
		if mine && (is.Until.Sub(now) < claimed/2 || wrong) {
			c.Put(key, claim{l.options.Origin, now.Add(claimed)})
		}
	})
	if err != nil && !errors.Is(err, ErrConflict) {
		l.options.OnError(err)
	}
	return mine && err == nil
}

// batch is how many ids are read at once.
const batch = 1000

// Past does something with all ids of keys with a prefix, made by [TimeKey], that stand under a moment which is
// not after now. It locks each id, and leaves out those that are locked.
func (l *Ledger[I, S]) Past(ctx context.Context, prefix string, now time.Time, do visit) error {
	for after := ""; ; {
		var ids []string
		err := l.View(func(tx *Tx) {
			for key := range tx.Scan(prefix, after) {
				at, id := readTimeKey(key)
				if at.After(now) || len(ids) == batch {
					return
				}
				ids, after = append(ids, id), After(key)
			}
		})
		if err == nil && len(ids) > 0 && l.Claim(prefix) {
			err = l.each(ctx, ids, do)
		}
		if err != nil || len(ids) < batch {
			return err
		}
	}
}
