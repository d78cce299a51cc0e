// Package turns lets one after the other do something about one thing, and leaves alone
// those who do something about another.
package turns

import (
	"context"
	"sync"
)

// Turns are of things by their names. The zero value is ready to use.
type Turns struct {
	mu   sync.Mutex
	held map[string]*turn
}

type turn struct {
	taken chan struct{} // holds one while somebody has the turn
	users int           // who has it or waits for it; with Turns.mu
}

// Take waits for the turn. Whoever gets it calls done, once. The error is that of ctx.
func (t *Turns) Take(ctx context.Context, name string) (done func(), err error) {
	one := t.join(name)
	select {
	case one.taken <- struct{}{}:
		return func() { <-one.taken; t.leave(name, one) }, nil
	case <-ctx.Done():
		t.leave(name, one)
		return nil, ctx.Err()
	}
}

// Try takes a turn that nobody has.
func (t *Turns) Try(name string) (done func(), ok bool) {
	one := t.join(name)
	select {
	case one.taken <- struct{}{}:
		return func() { <-one.taken; t.leave(name, one) }, true
	default:
		t.leave(name, one)
		return nil, false
	}
}

func (t *Turns) join(name string) *turn {
	t.mu.Lock()
	defer t.mu.Unlock()
	one := t.held[name]
	if one == nil {
		if t.held == nil {
			t.held = map[string]*turn{}
		}
		one = &turn{taken: make(chan struct{}, 1)}
		t.held[name] = one
	}
	one.users++
	return one
}

func (t *Turns) leave(name string, one *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if one.users--; one.users == 0 {
		delete(t.held, name)
	}
}
