// Package doors lets requests in, and work behind them, until the gateway is closed.
package doors

import (
	"context"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"
)

// Doors are open from [New] to [Doors.Close].
type Doors struct {
	logger *slog.Logger
	// Context ends with Close. Draining ends with Drain, and with Close.
	Context, Draining context.Context
	end, drain        func()

	mu      sync.Mutex // guards closed
	closed  bool
	running sync.WaitGroup // goroutines for which Close waits
	serving sync.WaitGroup // requests of clients
}

// New opens the doors.
func New(logger *slog.Logger) *Doors {
	d := &Doors{logger: logger}
	d.Context, d.end = context.WithCancel(context.Background())
	d.Draining, d.drain = context.WithCancel(d.Context)
	return d
}

// Drain ends what would last as long as the gateway. Requests go on.
func (d *Doors) Drain() { d.drain() }

// Until is ctx, and ends at Drain.
func (d *Doors) Until(ctx context.Context) (context.Context, func()) { return either(ctx, d.Draining) }

// either is ctx, and ends with another context, too.
func either(ctx, other context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(other, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}

// Enter has Served wait for a request of a client until leave is called. Its context ends with Close. It is not ok after Close.
func (d *Doors) Enter(ctx context.Context) (_ context.Context, leave func(), ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return ctx, nil, false
	}
	d.serving.Add(1)
	ctx, end := either(ctx, d.Context)
	return ctx, func() {
		end()
		d.serving.Done()
	}, true
}

// Background runs a function for which only Close waits. After Close it runs nothing, and is not ok. A panic ends it
// alone, as net/http has it for requests: what it works on is what servers say.
func (d *Doors) Background(what func()) (ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.closed {
		d.running.Go(func() { d.Alone(what) })
	}
	return !d.closed
}

// Alone does something that nothing else ends with if it panics.
func (d *Doors) Alone(what func()) {
	defer func() {
		if why := recover(); why != nil {
			d.logger.Error("a panic behind requests", "panic", why, "stack", string(debug.Stack()))
		}
	}()
	what()
}

// Close closes the doors, and waits for what runs in the background.
func (d *Doors) Close() {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.end()
	d.running.Wait()
}

// Served waits for the requests of clients, but no longer than that: a client may not read what it is answered.
func (d *Doors) Served(most time.Duration) {
	served := make(chan struct{})
	go func() {
		defer close(served)
		d.serving.Wait()
	}()
	select {
	case <-served:
	case <-time.After(most):
	}
}
