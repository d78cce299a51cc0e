package ledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
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

// again does something with the item, and does it again with the item as it is then if another process changed it.
func (r *Reservation[I, S]) again(ctx context.Context, do func() error) error {
	return r.ledger.Again(ctx, func() error {
		err := do()
		if errors.Is(err, ErrConflict) {
			item, failed := r.ledger.current(ctx, r.item.Standing().ID)
			if failed != nil {
				return failed
			}
			r.item = item
		}
		return err
	})
}

// Spent settles the uses: the decisions are on record, and that is what counts. What cannot be written now is written
// later. If the answer comes first, Spent returns before that.
func (r *Reservation[I, S]) Spent(ctx context.Context) {
	if r.ledger.options.AnswerFirst {
		r.ledger.settling.Go(func() { r.Settle(context.WithoutCancel(ctx)) })
		return
	}
	r.Settle(ctx)
}

// Settle is Spent, and always waits.
func (r *Reservation[I, S]) Settle(ctx context.Context) {
	defer r.unlock()
	outcomes := make([]Outcome, len(r.decisions))
	for n, decision := range r.decisions {
		outcomes[n] = Outcome{Decision: decision, Used: true}
	}
	if err := r.again(ctx, func() error { return r.ledger.SettleAll(ctx, r.item, outcomes) }); err != nil {
		r.ledger.options.OnError(err)
	}
}

// Settled waits for what was spent to be settled, or left to [Ledger.Run].
func (l *Ledger[I, S]) Settled() { l.settling.Wait() }

// InDoubt leaves the uses reserved: it is not known whether the decisions are on record. [Ledger.Run] asks the log, and
// then each use is spent or there again.
func (r *Reservation[I, S]) InDoubt() { r.unlock() }

// settledAtOnce is how many outcomes one change has at most.
const settledAtOnce = 16

// SettleAll notes outcomes of reservations that an item still has, by [Rules].Settle.
func (l *Ledger[I, S]) SettleAll(ctx context.Context, item I, outcomes []Outcome) error {
	for n, some := range slices.Collect(slices.Chunk(outcomes, settledAtOnce)) {
		if n > 0 {
			next, err := l.current(ctx, item.Standing().ID)
			if err != nil {
				return err
			}
			item = next
		}
		is := item.Standing()
		some = slices.DeleteFunc(slices.Clone(some), func(o Outcome) bool {
			return !slices.Contains(is.Reserved, Reserved{o.Decision, cmp.Or(o.Lost, l.options.Origin)})
		})
		if err := l.options.Rules.Settle(ctx, item, some); err != nil {
			return err
		}
	}
	return nil
}

// settle asks the log for the outcomes of the reservations of an item. The lock of the item is held. It asks for those
// alone that this origin made: what is not in this log may be in another.
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
