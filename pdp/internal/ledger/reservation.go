package ledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
)

// Reservation is a use of an item that one decision has, and no other can have, or uses of several decisions that go on
// record together. The item is locked until exactly one of Spent and InDoubt is called.
type Reservation[I Item, S Step] struct {
	ledger    *Ledger[I, S]
	item      I // with the reservation
	decisions []string
	unlock    func()
}

// Reserved is a reservation that a change has made, durably, so that the decision can be recorded: item is as the change
// left it. The caller holds the lock of the item, which the reservation unlocks.
//
// Whatever happens from then on, the use is not there for another decision. If it is neither spent nor in doubt,
// because the process ended, it is as in doubt.
func (l *Ledger[I, S]) Reserved(item I, by string, unlock func()) *Reservation[I, S] {
	return &Reservation[I, S]{l, item, []string{by}, unlock}
}

// Item is the item with what is reserved of it.
func (r *Reservation[I, S]) Item() I { return r.item }

// Add writes a change after which the item, as it is now, has one more reservation, by another decision.
func (r *Reservation[I, S]) Add(ctx context.Context, by string, write func(I) (I, error)) error {
	return r.again(ctx, func() error {
		item, err := write(r.item)
		if err == nil {
			r.item, r.decisions = item, append(r.decisions, by)
		}
		return err
	})
}

// again does something with the item, and does it again with the item as it is then if another process changed it, once what
// that process changed is on record.
func (r *Reservation[I, S]) again(ctx context.Context, do func() error) error {
	return r.ledger.Again(ctx, func() error {
		err := do()
		if errors.Is(err, ErrConflict) {
			item, failed := r.ledger.current(ctx, r.item.Standing().ID)
			switch {
			case errors.Is(failed, ErrElsewhere):
				return fmt.Errorf("%w: %w", ErrConflict, failed)
			case failed != nil:
				return failed
			}
			r.item = item
		}
		return err
	})
}

// Spent settles the uses: the decisions are on record. If it returns nil, the item has them among its uses, durably, and the
// decisions may be answered. After an error none of them may be: of a use that went to others ([ErrWithdrawn]) the log says so,
// and any other use is in doubt.
//
// Where other processes write, the outcomes go on record after Spent has returned.
func (r *Reservation[I, S]) Spent(ctx context.Context) error {
	return r.settle(ctx, !r.ledger.engine.Shared())
}

// Settle does what Spent does, and always waits until the outcomes are on record.
func (r *Reservation[I, S]) Settle(ctx context.Context) error { return r.settle(ctx, true) }

func (r *Reservation[I, S]) settle(ctx context.Context, recorded bool) error {
	l, settled := r.ledger, false
	defer func() {
		if !settled { // after an error or a panic
			r.unlock()
		}
	}()
	var all []Made[S]
	err := r.again(ctx, func() error {
		for all = nil; ; { // current has put on record what was made before
			outcomes, err := l.outcomes(r.item, r.decisions)
			if len(outcomes) == 0 || err != nil {
				return err
			}
			item, made, err := l.options.Rules.Settle(ctx, r.item, outcomes[:min(settledAtOnce, len(outcomes))])
			if err != nil {
				return err
			}
			r.item, all = item, append(all, made)
		}
	})
	if err != nil {
		is := r.item.Standing()
		l.doubts.add(is, r.decisions)
		if errors.Is(err, ErrWithdrawn) || errors.Is(err, l.options.Form.Errors.NotFound) {
			return errors.Join(fmt.Errorf("%w: %q", ErrWithdrawn, is.ID), l.resolve(ctx, is.ID))
		}
		item, failed := l.Read(is.ID) // the change may have been made, and its answer lost
		if failed != nil || slices.ContainsFunc(r.decisions, func(decision string) bool { return !item.Settled(decision) }) {
			return err
		}
		for _, decision := range r.decisions { // the item forgets its uses in time
			l.doubts.remove(is.ID, decision)
		}
	}
	settled = true
	record := func() {
		defer r.unlock()
		for _, made := range all {
			if err := l.Record(context.WithoutCancel(ctx), r.item, made); err != nil {
				l.options.OnError(err) // Run tries again
				return
			}
		}
	}
	if recorded {
		record()
	} else {
		l.settling.Go(record)
	}
	return nil
}

// outcomes returns the outcomes of those decisions that are on record, and for which the item still has reservations of this
// origin. The error is [ErrWithdrawn] if one of the others has not used the item.
func (l *Ledger[I, S]) outcomes(item I, decisions []string) (outcomes []Outcome, err error) {
	is := item.Standing()
	for _, decision := range decisions {
		switch {
		case slices.Contains(is.Reserved, Reserved{decision, l.options.Origin}):
			outcomes = append(outcomes, Outcome{Decision: decision, Used: true})
		case !item.Settled(decision):
			err = ErrWithdrawn
		}
	}
	return outcomes, err
}

// Settled waits until the outcomes of all that was spent are on record, or left to [Ledger.Run].
func (l *Ledger[I, S]) Settled() { l.settling.Wait() }

// InDoubt leaves the uses reserved: it is not known whether the decisions are on record. [Ledger.Run] asks the log, and
// then each use is spent or there again.
func (r *Reservation[I, S]) InDoubt() {
	r.ledger.doubts.add(r.item.Standing(), r.decisions)
	r.unlock()
}

// settledAtOnce is how many outcomes one change has at most.
const settledAtOnce = 16

// SettleAll notes outcomes of reservations that an item still has, by [Rules].Settle, and puts them on record.
func (l *Ledger[I, S]) SettleAll(ctx context.Context, item I, outcomes []Outcome) error {
	is := item.Standing()
	outcomes = slices.DeleteFunc(slices.Clone(outcomes), func(o Outcome) bool {
		return !slices.Contains(is.Reserved, Reserved{o.Decision, cmp.Or(o.Lost, l.options.Origin)})
	})
	for some := range slices.Chunk(outcomes, settledAtOnce) {
		next, made, err := l.options.Rules.Settle(ctx, item, some)
		if err == nil {
			for _, o := range some {
				l.doubts.remove(is.ID, o.Decision)
			}
			err = l.Record(ctx, next, made)
		}
		if err != nil {
			return err
		}
		item = next
	}
	return nil
}

// settle asks the log for the outcomes of the reservations of an item, whose lock is held. It asks only for those that this
// origin made: what is not in this log may be in another.
func (l *Ledger[I, S]) settle(ctx context.Context, id string) error {
	item, err := l.current(ctx, id)
	if err != nil {
		return err
	}
	var outcomes []Outcome
	for _, r := range item.Standing().Reserved {
		if r.Origin != l.options.Origin {
			continue
		}
		used, err := l.options.Log.Recorded(r.Decision)
		if err != nil {
			return fmt.Errorf("whether decision %s, which uses %s, is on record: %w", r.Decision, id, err)
		}
		outcomes = append(outcomes, Outcome{Decision: r.Decision, Used: used, Looked: true})
	}
	return l.SettleAll(ctx, item, outcomes)
}

// reserving are the decisions of this origin for which something of an item is reserved, or was.
type reserving = map[string][]string

// settleSome settles items, and removes the keys of those reservations that they have no more: a change that takes many
// away leaves some.
func (l *Ledger[I, S]) settleSome(of reserving) visit {
	return func(ctx context.Context, id string) error {
		if err := l.settle(ctx, id); err != nil {
			return err
		}
		return l.dropReserved(ctx, l.options.Origin, id, of[id])
	}
}

// dropReserved removes the keys of those reservations of an origin that an item has no more.
func (l *Ledger[I, S]) dropReserved(ctx context.Context, origin, id string, decisions []string) error {
	for some := range slices.Chunk(decisions, settledAtOnce) {
		err := l.Change(ctx, func(c *Change[S]) {
			item, _ := l.options.Rules.State(c, id)
			for _, decision := range some {
				if r := (Reserved{decision, origin}); !slices.Contains(item.Standing().Reserved, r) {
					c.Delete(l.options.Form.reserved(r.Origin, r.Decision))
				}
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// doubts holds, by the id of the item, the decisions of this process that may not be on record or may not have used the item.
// It is lost on restart: only remaining reservations are resolved then.
type doubts struct {
	mu sync.Mutex
	of map[string]map[string]Standing // an item as it was with the reservation, by the decision
}

func (d *doubts) add(is Standing, decisions []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.of == nil {
		d.of = map[string]map[string]Standing{}
	}
	if d.of[is.ID] == nil {
		d.of[is.ID] = map[string]Standing{}
	}
	for _, decision := range decisions {
		d.of[is.ID][decision] = is
	}
}

func (d *doubts) remove(id, decision string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if delete(d.of[id], decision); len(d.of[id]) == 0 {
		delete(d.of, id)
	}
}

// all returns the ids of the items, and the decisions about one of them.
func (d *doubts) all(id string) (ids []string, decisions map[string]Standing) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(maps.Keys(d.of)), maps.Clone(d.of[id])
}

// resolve ends doubts about an item, whose lock is held: those of decisions that used it, and of decisions that are not on
// record. It records a withdrawal of each decision that is on record, and neither used the item nor has a reservation.
func (l *Ledger[I, S]) resolve(ctx context.Context, id string) error {
	_, decisions := l.doubts.all(id)
	item, err := l.Read(id)
	gone := errors.Is(err, l.options.Form.Errors.NotFound)
	if err != nil && !gone {
		return err
	}
	for decision, was := range decisions {
		if !gone && slices.Contains(item.Standing().Reserved, Reserved{decision, l.options.Origin}) {
			continue
		}
		if gone || !item.Settled(decision) {
			recorded, err := l.options.Log.Recorded(decision)
			if err == nil && recorded {
				err = l.options.Log.Withdraw(context.WithoutCancel(ctx), Withdrawal{Decision: decision, Item: id, Tenant: was.Tenant, Caller: was.Caller})
			}
			if err != nil {
				return fmt.Errorf("the withdrawal of decision %s, which does not use %q: %w", decision, id, err)
			}
		}
		l.doubts.remove(id, decision)
	}
	return nil
}
