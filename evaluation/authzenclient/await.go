package authzenclient

import (
	"context"
	"time"
)

const (
	// firstLook is how long it is before somebody is asked again at first, mostBetween
	// how long in the end: people take minutes, and a PDP has many PEPs that wait.
	firstLook   = 6 * time.Second
	mostBetween = time.Minute
)

// await has people asked, where they were not, and waits for what they say.
func (w *waiter) await(ctx context.Context, h Handle) (Standing, *Error) {
	for n := 0; ; n++ {
		s, err := w.look(ctx, h, 0)
		later := s.told.retryAfter
		switch {
		case err != nil && (!err.passing() || ctx.Err() != nil):
			return s, err
		case err != nil:
			later = err.RetryAfter
		case !s.Pending():
			return s, s.err
		default:
			h = s.handle
		}
		if err := w.client.clock.pause(ctx, n, later, h.ends()); err != nil {
			return s, err
		}
	}
}

// look looks, and keeps the handle of what was asked for just now.
func (w *waiter) look(ctx context.Context, h Handle, wait time.Duration) (Standing, *Error) {
	s, err := tasks{w.client}.look(ctx, h, wait)
	if err == nil && h.kept.Task == nil {
		err = w.kept(ctx, s.handle)
	}
	return s, err
}

// passing reports whether a failure says nothing about what people said.
func (e *Error) passing() bool {
	return e.Kind == Unreachable || e.Kind == TimedOut || e.Kind == Unavailable
}

// pace is how long it is before somebody is asked for the n-th time again.
func (k clock) pace(n int) time.Duration {
	longest := min(firstLook<<min(n, 10), mostBetween)
	return time.Duration((0.5 + k.jitter()/2) * float64(longest))
}

// pause waits before somebody is asked for the n-th time again, at least as long as they
// want. It fails at once where they would be asked too late.
func (k clock) pause(ctx context.Context, n int, atLeast time.Duration, ends time.Time) *Error {
	pause := max(k.pace(n), atLeast)
	if !ends.IsZero() && !k.now().Add(pause).Before(ends) {
		return notApproved("nobody decided in time")
	}
	if err := k.wait(ctx, pause); err != nil {
		e := &Error{Kind: Cancelled, Detail: "the wait for people was given up", cause: err}
		if ctx.Err() == context.DeadlineExceeded {
			e.Kind = TimedOut
		}
		return e
	}
	return nil
}
