package door

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/labstack/echo/v4"
)

// allotments ends the contexts of requests whose time is over. One timer is enough for all of them: a request sets none of
// its own. The zero value is ready.
type allotments struct {
	mu      sync.Mutex
	running allotted    // the anchor of a ring, by deadline
	waited  int         // how many of them somebody waits for
	timer   *time.Timer // nil until it is needed
	fires   time.Time   // when the timer does; zero if it is not set
	soon    bool        // that is within goneWithin
}

// goneWithin is how soon somebody who waits learns that the client has gone away. Who asks learns it at once.
const goneWithin = 50 * time.Millisecond

// allotted is the context of a request that has so long for its answer. It is what [context.WithTimeout] returns, for
// less: nothing is made to end it unless somebody waits for that.
type allotted struct {
	context.Context // of the request
	of              *allotments
	deadline        time.Time
	ended           atomic.Uint32

	// of.mu guards the rest.
	done          chan struct{} // nil until somebody waits
	before, after *allotted
}

// What ended an allotted context.
const (
	notEnded uint32 = iota
	late            // its deadline
	left            // who has it is done with it
	gone            // the context of its request
)

// allot gives a request its time, from now on.
func (d *Door) allot(c echo.Context) *allotted {
	a := &allotted{}
	a.Context, a.of = c.Request().Context(), &d.allotted
	a.begin(d.Options.Load.RequestTime)
	return a
}

func (a *allotted) begin(each time.Duration) {
	o := a.of
	o.mu.Lock()
	defer o.mu.Unlock()
	a.deadline = time.Now().Add(each)
	if each <= 0 {
		a.ended.Store(late)
		return
	}
	anchor := &o.running
	if anchor.after == nil {
		anchor.before, anchor.after = anchor, anchor
	}
	after := anchor
	for after.before != anchor && a.deadline.Before(after.before.deadline) { // never, as long as each has the same time
		after = after.before
	}
	a.before, a.after = after.before, after
	a.before.after, after.before = a, a
	o.wake(a.deadline)
}

// wake sets the timer, unless it fires before. It is called with o.mu.
func (o *allotments) wake(at time.Time) {
	if !o.fires.IsZero() && !at.Before(o.fires) {
		return
	}
	o.fires = at
	if in := time.Until(at); o.timer == nil {
		o.timer = time.AfterFunc(in, o.look)
	} else {
		o.timer.Reset(in)
	}
}

// wakeSoon sets the timer for somebody who waits. It is called with o.mu.
func (o *allotments) wakeSoon() {
	if !o.soon {
		o.soon = true
		o.wake(time.Now().Add(goneWithin))
	}
}

// look ends what is over.
func (o *allotments) look() {
	for _, a := range o.late() { // without the lock, because one may be the context of another
		_ = a.Err()
	}
}

// late ends what is late, and returns what else somebody waits for.
func (o *allotments) late() (waited []*allotted) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now, anchor := time.Now(), &o.running
	for anchor.after != anchor && !now.Before(anchor.after.deadline) {
		anchor.after.end(late)
	}
	for a := anchor.after; len(waited) < o.waited; a = a.after {
		if a.done != nil {
			waited = append(waited, a)
		}
	}
	o.fires, o.soon = time.Time{}, false
	if len(waited) > 0 {
		o.wakeSoon()
	}
	if anchor.after != anchor {
		o.wake(anchor.after.deadline)
	}
	return waited
}

// end ends a context, unless it has ended. It is called with a.of.mu.
func (a *allotted) end(how uint32) {
	if a.ended.Load() != notEnded {
		return
	}
	a.ended.Store(how)
	a.before.after, a.after.before = a.after, a.before
	a.before, a.after = nil, nil
	if a.done != nil {
		a.of.waited--
		close(a.done)
	}
}

// leave is the [context.CancelFunc].
func (a *allotted) leave() {
	a.of.mu.Lock()
	defer a.of.mu.Unlock()
	a.end(left)
}

// Deadline implements [context.Context].
func (a *allotted) Deadline() (time.Time, bool) {
	if at, ok := a.Context.Deadline(); ok && at.Before(a.deadline) {
		return at, true
	}
	return a.deadline, true
}

// Done implements [context.Context].
func (a *allotted) Done() <-chan struct{} {
	o := a.of
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case a.done != nil:
	case a.ended.Load() != notEnded:
		a.done = make(chan struct{})
		close(a.done)
	default:
		a.done = make(chan struct{})
		o.waited++
		o.wakeSoon()
	}
	return a.done
}

// Err implements [context.Context].
func (a *allotted) Err() error {
	if a.ended.Load() == notEnded && a.Context.Err() != nil {
		a.of.mu.Lock()
		a.end(gone)
		a.of.mu.Unlock()
	}
	switch a.ended.Load() {
	case late:
		return context.DeadlineExceeded
	case left:
		return context.Canceled
	case gone:
		return a.Context.Err()
	}
	return nil
}
