// Package turn does work once that several callers want at the same time: a [Turn] lets one caller work while the others wait,
// and an [Errand] does the work for all of them, and goes on when no caller waits for it any longer.
//
// It knows neither the callers nor the work: a [Sender] says on which account an errand runs.
package turn

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Turn lets one caller work at a time while others wait. A caller stops waiting when its request has ended. The caller that has
// the turn must leave it, also if a server makes the caller panic.
type Turn chan struct{}

// New returns a free turn.
func New() Turn { return make(Turn, 1) }

// Take waits for the turn, or until ctx ends: then it returns the error of ctx.
func (t Turn) Take(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Leave frees the turn for the next caller.
func (t Turn) Leave() { <-t }

// Errand is work that is done once for all callers that want it. It goes on if they do not wait for it any longer. The zero
// Errand has no run under way.
type Errand[T any] struct {
	mu      sync.Mutex
	current *run[T] // nil if no run is under way
}

type run[T any] struct {
	done  chan struct{} // closed when value and err are set
	value T
	err   error
}

// Sender is the caller that starts a run, and on whose account the run is.
type Sender struct {
	// Hold takes a place for one more errand of the sender, until release is called. It is not ok if there is no place.
	Hold func() (release func(), ok bool)
	// Context is the context of the run. It lasts no longer than the rights of the sender, whether or not the sender waits.
	Context func(context.Context) (context.Context, context.CancelFunc)
	// Background runs work for which no caller waits. It is not ok, and runs nothing, once everything is closed.
	Background func(work func()) (ok bool)
}

// Errors of an errand besides those of its work.
var (
	ErrMany   = errors.New("too many errands of one sender")
	ErrOver   = errors.New("nobody is sent off any longer")
	ErrBroken = errors.New("the errand has panicked")
	ErrAlone  = errors.New("nobody waits for the errand any longer")
)

// maxDuration is how long a run may last.
const maxDuration = 2 * time.Minute

// Do starts the work on the account of the sender, or joins the run that is under way, and waits for the result. If ctx ends
// first, the error is ErrAlone and that of ctx.
func (e *Errand[T]) Do(ctx context.Context, s Sender, work func(context.Context) (T, error)) (value T, joined bool, err error) {
	r, joined, err := e.start(ctx, s, work)
	if err != nil {
		return value, joined, err
	}
	select {
	case <-r.done:
		return r.value, joined, r.err
	case <-ctx.Done():
		return value, joined, errors.Join(ErrAlone, ctx.Err())
	}
}

func (e *Errand[T]) start(ctx context.Context, s Sender, work func(context.Context) (T, error)) (r *run[T], joined bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.current != nil {
		return e.current, true, nil
	}
	release, ok := s.Hold()
	if !ok {
		return nil, false, ErrMany
	}
	r = &run[T]{done: make(chan struct{}), err: ErrBroken}
	ctx, expire := s.Context(context.WithoutCancel(ctx))
	ctx, cancel := context.WithTimeout(ctx, maxDuration)
	end := func() {
		cancel()
		expire()
		release()
	}
	ok = s.Background(func() {
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
		return nil, false, ErrOver
	}
	e.current = r
	return r, false, nil
}
