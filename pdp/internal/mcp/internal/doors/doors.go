// Package doors admits requests, and the work behind them, until the gateway closes.
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

// New returns open doors.
func New(logger *slog.Logger) *Doors {
	d := &Doors{logger: logger}
	d.Context, d.end = context.WithCancel(context.Background())
	d.Draining, d.drain = context.WithCancel(d.Context)
	return d
}

// Drain ends streams, which would last as long as the gateway. Requests go on.
func (d *Doors) Drain() { d.drain() }

// Until returns a context that ends with ctx, and at Drain.
func (d *Doors) Until(ctx context.Context) (context.Context, func()) { return either(ctx, d.Draining) }

// Within is ctx, and ends at Close.
func (d *Doors) Within(ctx context.Context) (context.Context, func()) { return either(ctx, d.Context) }

// either returns a context that ends with ctx, and with other.
func either(ctx, other context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(other, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}

// Enter makes Served wait for a request until leave is called. Its context ends with Close, after which it is not ok.
func (d *Doors) Enter(ctx context.Context) (_ context.Context, leave func(), ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return ctx, nil, false
	}
	d.serving.Add(1)
	ctx, end := d.Within(ctx)
	return ctx, func() {
		end()
		d.serving.Done()
	}, true
}

// Background runs work for which only Close waits. After Close it runs nothing, and is not ok. A panic ends only this work, as
// in net/http, where it ends only its request: the work handles messages of servers.
func (d *Doors) Background(work func()) (ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.closed {
		d.running.Go(func() { d.Alone(work) })
	}
	return !d.closed
}

// Alone runs work. A panic in it ends nothing else.
func (d *Doors) Alone(work func()) {
	defer func() {
		if why := recover(); why != nil {
			d.logger.Error("a panic behind requests", "panic", why, "stack", string(debug.Stack()))
		}
	}()
	work()
}

// Close closes the doors, and waits for the work in the background.
func (d *Doors) Close() {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.end()
	d.running.Wait()
}

// Served waits for the requests of clients, but no longer than most: a client may not read its answer.
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
