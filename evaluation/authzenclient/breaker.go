package authzenclient

import (
	"sync"
	"time"
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

// enter asks for leave to call. Whoever gets it calls leave, once.
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
