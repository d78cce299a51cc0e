package link

import (
	"context"
	"sync"
	"time"

	"policy-service/pdp/internal/mcp/internal/answer"
	"policy-service/pdp/internal/mcp/internal/identity"
	"policy-service/pdp/internal/mcp/internal/upstream"
)

// errand is work that is done once for all requests that want it. It goes on if they do not wait for it any longer. The zero
// errand has no run under way.
type errand[T any] struct {
	mu      sync.Mutex
	current *run[T] // nil if no run is under way
}

type run[T any] struct {
	done  chan struct{} // closed when value and err are set
	value T
	err   error
}

const (
	// Errands is the key under which the errands of a person count. An errand counts also after its last waiter has left.
	Errands     = "errands"
	errandLasts = 2 * time.Minute
)

// sendOff starts the work on the account of a person, or joins the run that is under way, and waits for the result.
func sendOff[T any](ctx context.Context, g *Servers, who *identity.Principal, e *errand[T], work func(context.Context) (T, error)) (value T, joined bool, err error) {
	r, joined, err := e.start(ctx, g, who, work)
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

// start starts or joins a run. It lasts no longer than the rights of the principal, whether or not a request waits.
func (e *errand[T]) start(ctx context.Context, g *Servers, who *identity.Principal, work func(context.Context) (T, error)) (r *run[T], joined bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.current != nil {
		return e.current, true, nil
	}
	release, ok := g.o.Rates.Hold(who.Account(), Errands)
	if !ok {
		return nil, false, answer.Limited("", time.Second)
	}
	r = &run[T]{done: make(chan struct{}), err: ErrBroken}
	ctx, expire := who.Context(context.WithoutCancel(ctx))
	ctx, leave := g.doors.Within(ctx)
	ctx, cancel := context.WithTimeout(ctx, errandLasts)
	end := func() {
		cancel()
		leave()
		expire()
		release()
	}
	ok = g.doors.Background(func() {
		defer end()
		defer func() { // also if the work panics
			e.mu.Lock()
			e.current = nil
			e.mu.Unlock()
			close(r.done)
		}()
		r.value, r.err = work(ctx)
	})
	if !ok {
		end()
		return nil, false, ErrClosed
	}
	e.current = r
	return r, false, nil
}
