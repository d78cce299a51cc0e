package gate

import (
	"context"
	"sync"
	"time"

	"policy-service/pdp/mcp/internal/upstream"
)

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

// errand is something that is done once for all who want it, and goes on if they do not wait for it any longer. The zero
// errand has nobody under way.
type errand[T any] struct {
	mu  sync.Mutex
	now *errandRun[T] // nil if nobody is under way
}

type errandRun[T any] struct {
	done  chan struct{} // closed when what follows is set
	value T
	err   error
}

// errandTime is how long an errand may last.
const errandTime = 2 * time.Minute

// do waits for what the errand brings, and sends it off if it is not under way: else it is joined. It is done for x, and
// waited for until ctx ends.
func (e *errand[T]) do(ctx context.Context, x *exchange, what func(context.Context) (T, error)) (value T, joined bool, err error) {
	r, joined, err := e.send(ctx, x, what)
	if err != nil {
		return value, joined, err
	}
	select {
	case <-r.done:
		return r.value, joined, r.err
	case <-ctx.Done():
		return value, joined, &upstream.Error{Detail: "nobody waits for the server any longer", Err: ctx.Err()}
	}
}

// Errands are what requests of a principal have sent off: they count also if nobody waits for them any longer.
const Errands = "errands"

func (e *errand[T]) send(ctx context.Context, x *exchange, what func(context.Context) (T, error)) (r *errandRun[T], joined bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.now != nil {
		return e.now, true, nil
	}
	release, ok := x.g.o.Rates.Hold(x.who.Key, Errands)
	if !ok {
		return nil, false, refusedError{limited(time.Second)}
	}
	r = &errandRun[T]{done: make(chan struct{}), err: errBroken}
	ctx, expire := x.who.Context(context.WithoutCancel(ctx))
	ctx, cancel := context.WithTimeout(ctx, errandTime)
	stop := context.AfterFunc(x.g.ctx, cancel)
	end := func() {
		stop()
		cancel()
		expire()
		release()
	}
	ok = x.g.background(func() {
		defer end()
		defer func() { // also if somebody panics
			e.mu.Lock()
			e.now = nil
			e.mu.Unlock()
			close(r.done)
		}()
		r.value, r.err = what(ctx)
	})
	if !ok {
		end()
		return nil, false, errLinkClosed
	}
	e.now = r
	return r, false, nil
}
