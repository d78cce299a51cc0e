// Package turn is for what many want at once, and what is done once: a [Turn] has one of them do it while the others wait, and
// an [Errand] does it for all of them, and goes on if nobody waits for it any longer.
//
// It knows neither who they are nor what they want: a [Sender] says on whose account an errand is.
package turn

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Turn is for what one does at a time while others wait, and do not wait any longer if their request has ended. Whoever has
// it leaves it, also if a server makes them panic.
type Turn chan struct{}

// New is a turn that nobody has.
func New() Turn { return make(Turn, 1) }

// Take waits for the turn, or until ctx ends: that is its error.
func (t Turn) Take(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Leave gives the turn to another.
func (t Turn) Leave() { <-t }

// Errand is something that is done once for all who want it, and goes on if they do not wait for it any longer. The zero
// Errand has nobody under way.
type Errand[T any] struct {
	mu  sync.Mutex
	now *run[T] // nil if nobody is under way
}

type run[T any] struct {
	done  chan struct{} // closed when what follows is set
	value T
	err   error
}

// Sender is whoever sends somebody off.
type Sender struct {
	// Hold takes a place for one more errand of the sender's, until release is called. It is not ok if there is none.
	Hold func() (release func(), ok bool)
	// Context is what the errand may work by: no longer than the sender may, whether or not he waits.
	Context func(context.Context) (context.Context, context.CancelFunc)
	// Background runs what nobody waits for. It is not ok, and nothing runs, if all is over.
	Background func(what func()) (ok bool)
}

// Why an errand brings nothing, besides what it says itself.
var (
	ErrMany   = errors.New("too many errands of one sender")
	ErrOver   = errors.New("nobody is sent off any longer")
	ErrBroken = errors.New("the errand has panicked")
	ErrAlone  = errors.New("nobody waits for the errand any longer")
)

// most is how long an errand may last.
const most = 2 * time.Minute

// Do waits for what the errand brings, and sends it off if it is not under way: else it is joined. It is done on the sender's
// account, and waited for until ctx ends: the error is ErrAlone then, and that of ctx.
func (e *Errand[T]) Do(ctx context.Context, s Sender, what func(context.Context) (T, error)) (value T, joined bool, err error) {
	r, joined, err := e.send(ctx, s, what)
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

func (e *Errand[T]) send(ctx context.Context, s Sender, what func(context.Context) (T, error)) (r *run[T], joined bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.now != nil {
		return e.now, true, nil
	}
	release, ok := s.Hold()
	if !ok {
		return nil, false, ErrMany
	}
	r = &run[T]{done: make(chan struct{}), err: ErrBroken}
	ctx, expire := s.Context(context.WithoutCancel(ctx))
	ctx, cancel := context.WithTimeout(ctx, most)
	end := func() {
		cancel()
		expire()
		release()
	}
	ok = s.Background(func() {
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
		return nil, false, ErrOver
	}
	e.now = r
	return r, false, nil
}
