package gate

import "context"

// turn is for what one does at a time while others wait, and do not wait any longer if their request has ended. Whoever has
// it leaves it, also if a server makes them panic.
type turn chan struct{}

func newTurn() turn { return make(turn, 1) }

func (t turn) take(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (t turn) leave() { <-t }
