package ledger

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// SettleLost ends what waits for the log of another origin, which will never say anything any more. What that origin reserved
// counts as used, on record here, and its steps that may not be on its log are put on record here, with the same ids. Several
// processes may do so at once. After an error it can be called again.
func (l *Ledger[I, S]) SettleLost(ctx context.Context, origin string) error {
	if !l.engine.Shared() || origin == "" || origin == l.options.Origin {
		return fmt.Errorf("%w: %q is not the origin of another process that was lost", ErrInvalid, origin)
	}
	lost := reserving{}
	err := l.View(func(tx *Tx) {
		for e := range outbox[S](tx, "", func(string) bool { return false }) {
			if id := e.of().Item; e.Origin == origin && lost[id] == nil {
				lost[id] = []string{}
			}
		}
		for decision, read := range tx.Scan(l.options.Form.reserved(origin, ""), "") {
			var id string
			if read(&id) {
				lost[id] = append(lost[id], decision)
			}
		}
	})
	for _, id := range slices.Sorted(maps.Keys(lost)) {
		release, failed := l.Lock(ctx, id)
		if failed != nil {
			return errors.Join(err, failed)
		}
		failed = l.Again(ctx, func() error { return l.settleLost(ctx, origin, id, lost[id]) })
		release()
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("what %s has left of %q: %w", origin, id, failed))
		}
	}
	return err
}

// lookForLost is how often SettleAllLost looks.
const lookForLost = time.Minute

// SettleAllLost settles what origins have left that are lost. [Ledger.Run] has it done as other due work, and it looks once in
// a while.
func (l *Ledger[I, S]) SettleAllLost(ctx context.Context, lost func(context.Context) ([]string, error)) error {
	if now := l.options.Now(); lost == nil || now.Before(l.lookedForLost.Add(lookForLost)) {
		return nil
	} else {
		l.lookedForLost = now
	}
	origins, err := lost(ctx)
	for _, origin := range origins {
		if origin != l.options.Origin {
			err = errors.Join(err, l.SettleLost(ctx, origin))
		}
	}
	return err
}

// settleLost is SettleLost of one item, whose lock is held.
func (l *Ledger[I, S]) settleLost(ctx context.Context, origin, id string, decisions []string) error {
	switch err := l.takeOver(ctx, origin, id); {
	case errors.Is(err, l.options.Form.Errors.NotFound): // nothing is left of it but the keys of its reservations
	case err != nil:
		return err
	default:
		if err := l.settleReserved(ctx, origin, id); err != nil {
			return err
		}
	}
	return l.dropReserved(ctx, origin, id, decisions)
}

// settleReserved settles what an origin that was lost has reserved of an item. What another process has settled just now is left
// to that one, be it on record already or not.
func (l *Ledger[I, S]) settleReserved(ctx context.Context, origin, id string) error {
	item, err := l.current(ctx, id)
	if errors.Is(err, ErrElsewhere) {
		if stored, failed := l.Read(id); failed == nil && len(lostOutcomes(stored, origin)) == 0 {
			return nil
		}
	}
	if err != nil {
		return err
	}
	return l.SettleAll(ctx, item, lostOutcomes(item, origin))
}

// lostOutcomes are the ends of the reservations that an item has of an origin that was lost.
func lostOutcomes(item Item, origin string) (outcomes []Outcome) {
	for _, r := range item.Standing().Reserved {
		if r.Origin == origin {
			outcomes = append(outcomes, Outcome{Decision: r.Decision, Used: true, Lost: origin})
		}
	}
	return outcomes
}

// takeOver puts steps of an item on record that another origin was to record. If that did so before it was lost, they are on
// record twice: their ids are the same.
func (l *Ledger[I, S]) takeOver(ctx context.Context, origin, id string) error {
	var item I
	var keys []string
	var steps []S
	err := l.View(func(tx *Tx) {
		item = l.read(tx, id)
		for e := range outbox[S](tx, id, func(string) bool { return false }) {
			if e.Origin == origin {
				keys, steps = append(keys, e.key), append(steps, e.Steps...)
			}
		}
	})
	if err != nil || len(keys) == 0 {
		return err
	}
	here := proving{item: id, taken: true}
	for _, step := range steps {
		if err := l.recordStep(ctx, item, step, true); err != nil {
			return fmt.Errorf("%w: %w", ErrUnrecorded, err)
		}
		here.records = append(here.records, step.Entry().ID)
	}
	_, err = l.Update(func(c *Change[S]) {
		if c.Get(keys[0], new(outboxed[S])) == 0 {
			return // another process has just done so
		}
		if item, found := l.options.Rules.State(c, id); found {
			l.options.Rules.Save(c, l.options.Rules.Moved(item, here.records, l.options.Origin))
		}
	})
	if err != nil {
		return err
	}
	if l.options.Log.Prove == nil {
		here.records = nil
	}
	return l.prove(ctx, here, keys...) // until the entries are gone, the item does not count
}
