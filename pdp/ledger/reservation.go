package ledger

import (
	"context"
	"fmt"
)

// Reservation is a use of an item that one decision has, and no other can have. The item is locked until exactly one of
// Spent and InDoubt is called.
type Reservation[I Item, S Step] struct {
	ledger   *Ledger[I, S]
	item     I // with the reservation
	decision string
	unlock   func()
}

// Reserve writes a change after which an item has a reservation by a decision, durably, so that the decision can be
// recorded. The caller holds the lock of the item. If there is no error, the reservation unlocks it.
//
// Whatever happens after Reserve, the use is not there for another decision. If it is neither spent nor in doubt,
// because the process ended, it is as in doubt.
func (l *Ledger[I, S]) Reserve(item I, by string, unlock func(), write func(*Change[S])) (*Reservation[I, S], error) {
	if err := l.Update(write); err != nil {
		return nil, err
	}
	return &Reservation[I, S]{l, item, by, unlock}, nil
}

// Spent settles the use: the decision is on record, and that is what counts. What cannot be written now is written
// later.
func (r *Reservation[I, S]) Spent(ctx context.Context) {
	defer r.unlock()
	if err := r.ledger.options.Rules.Settle(ctx, r.item, []Outcome{{r.decision, true}}); err != nil {
		r.ledger.options.OnError(err)
	}
}

// InDoubt leaves the use reserved: it is not known whether the decision is on record. [Ledger.Run] asks the log, and
// then the use is spent or there again.
func (r *Reservation[I, S]) InDoubt() { r.unlock() }

// settle asks the log what became of the reservations of an item. The lock of the item is held.
func (l *Ledger[I, S]) settle(ctx context.Context, id string) error {
	item, err := l.current(ctx, id)
	if err != nil {
		return err
	}
	var outcomes []Outcome
	for _, decision := range item.Standing().Reserved {
		used, err := l.options.Log.Recorded(decision)
		if err != nil {
			return fmt.Errorf("whether decision %s, which uses %s in %s, is on record: %w",
				decision, id, l.options.Form.Items, err)
		}
		outcomes = append(outcomes, Outcome{decision, used})
	}
	return l.options.Rules.Settle(ctx, item, outcomes)
}
