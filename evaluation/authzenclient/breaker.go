package authzenclient

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"policy-service/evaluation"
)

// breaker stops asking a PDP that does not answer, so that a PEP's callers are
// denied at once instead of after a timeout each. It is closed, open, or half
// open: then one call is let through, and decides.
type breaker struct {
	threshold int // 0: never opens
	coolDown  time.Duration
	now       func() time.Time

	mu       sync.Mutex
	failures int
	open     bool
	since    time.Time
	probing  bool
	turn     uint // counts openings and closings: a call of an earlier turn has no say in this one
}

func newBreaker() *breaker { return &breaker{threshold: 5, coolDown: 10 * time.Second} }

type outcome uint8

const (
	failed    outcome = iota
	answered          // the PDP is alive, whatever it said
	undecided         // says nothing about the PDP
)

func outcomeOf(err *Error) outcome {
	if err == nil {
		return answered
	}
	switch err.Kind {
	case Refused, BadItem, Obligated:
		return answered
	case Cancelled, NotAsked:
		return undecided
	}
	return failed
}

// enter asks for leave to call. With leave the caller calls leave, once.
func (b *breaker) enter() (leave func(outcome), err *Error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open {
		if b.probing || b.now().Sub(b.since) < b.coolDown {
			return nil, &Error{Kind: Open, Detail: "the PDP did not answer lately; nothing was sent"}
		}
		b.probing = true
	}
	turn := b.turn
	return func(o outcome) { b.leave(turn, o) }, nil
}

func (b *breaker) leave(turn uint, o outcome) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if turn != b.turn || b.threshold == 0 {
		return
	}
	switch {
	case o == undecided:
		b.probing = false // the next call may try
	case o == answered:
		if b.open {
			b.turn++
		}
		b.open, b.probing, b.failures = false, false, 0
	default:
		b.failures++
		if b.open || b.failures >= b.threshold {
			b.open, b.probing, b.failures, b.since = true, false, 0, b.now()
			b.turn++
		}
	}
}

// repeatable orders failures by the possible effect at the PDP. A call can be
// asked again after a failure that is no worse than the call allows.
type repeatable uint8

const (
	never       repeatable = iota
	unsent                 // no connection was made, so nothing happened
	unanswered             // it was sent, or may have been; no byte came back
	askedToWait            // the PDP said: later
)

// repeatOf is the failures after which a question may be sent again: one that presents an approval may use it up.
func repeatOf(requests ...evaluation.Request) repeatable {
	if slices.ContainsFunc(requests, presents) {
		return unsent
	}
	return unanswered
}

// within reports whether a call that allows most may be asked again.
func (r repeatable) within(most repeatable) bool {
	return r != never && (r == unsent || most == unanswered)
}

// failureOf classifies an error of http.Client.Do: until then no answer began.
func failureOf(err error) repeatable {
	var op *net.OpError
	switch {
	case errors.Is(err, syscall.ECONNREFUSED) && errors.As(err, &op) && op.Op == "dial":
		return unsent
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, io.EOF):
		return unanswered
	}
	return never
}

// mayRepeat waits for the next attempt, and reports whether there is one.
func (c *Client) mayRepeat(ctx context.Context, a asking, err *Error, n int) bool {
	if n >= c.retries || !err.again.within(a.repeat) {
		return false
	}
	// The exponent is bounded so that no number of retries overflows.
	pause := time.Duration((0.5 + c.clock.jitter()) * float64(50*time.Millisecond<<min(n, 10)))
	pause = max(pause, err.RetryAfter)
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < pause {
		return false // waiting would only turn a clear error into a timeout
	}
	return c.clock.wait(ctx, pause) == nil
}

// retryAfter reads the header, in seconds or as a date; 0 is none.
func (c *Client) retryAfter(h http.Header) time.Duration {
	const most = 24 * time.Hour
	s := h.Get("Retry-After")
	if s == "" {
		return 0
	}
	if n, err := strconv.ParseUint(s, 10, 31); err == nil {
		// 0 is an invitation too, and must not read as none.
		return min(max(time.Duration(n)*time.Second, time.Nanosecond), most)
	}
	at, err := http.ParseTime(s)
	if err != nil {
		return 0
	}
	return min(max(at.Sub(c.clock.now()), time.Nanosecond), most)
}
