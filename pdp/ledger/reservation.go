package ledger

import (
	"context"
	"fmt"
)

// Reservation is a use of an item that one decision has, and no other can have, or uses of several decisions that go on
// record together. The item is locked until exactly one of Spent and InDoubt is called.
type Reservation[I Item, S Step] struct {
	ledger    *Ledger[I, S]
	item      I // with the reservation
	decisions []string
	unlock    func()
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
	return &Reservation[I, S]{l, item, []string{by}, unlock}, nil
}

// Item is the item with what is reserved of it.
func (r *Reservation[I, S]) Item() I { return r.item }

// Add writes a change after which the item has one more reservation, by another decision.
func (r *Reservation[I, S]) Add(item I, by string, write func(*Change[S])) error {
	if err := r.ledger.Update(write); err != nil {
		return err
	}
	r.item, r.decisions = item, append(r.decisions, by)
	return nil
}

// Spent settles the uses: the decisions are on record, and that is what counts. What cannot be written now is written
// later.
func (r *Reservation[I, S]) Spent(ctx context.Context) {
	defer r.unlock()
	outcomes := make([]Outcome, len(r.decisions))
	for n, decision := range r.decisions {
		outcomes[n] = Outcome{decision, true}
	}
	if err := r.ledger.options.Rules.Settle(ctx, r.item, outcomes); err != nil {
		r.ledger.options.OnError(err)
	}
}

// InDoubt leaves the uses reserved: it is not known whether the decisions are on record. [Ledger.Run] asks the log, and
// then each use is spent or there again.
func (r *Reservation[I, S]) InDoubt() { r.unlock() }

// settle asks the log for the outcomes of the reservations of an item. The lock of the item is held.
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
