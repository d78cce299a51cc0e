package desk

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"policy-service/evaluation/authzenclient"
	"policy-service/evaluation/authzenclient/approvals"
)

const (
	// mostLooks is how many tasks are looked at at a time.
	mostLooks = 16
	// turn is how long a round of looks at all tasks takes, where each is looked at by itself. A PDP may want a longer one.
	turn = 10 * time.Second
)

// staff starts a goroutine for each task to be looked at, within the limit.
func (w *watch) staff() {
	r := w.round
	if r == nil || !w.settled && !w.alone {
		return
	}
	for range min(w.due.Len(), mostLooks-r.lookers) { // each running one has a task already
		r.lookers++
		w.desk.running.Go(func() { w.look(r) })
	}
}

// look looks at one task after the other until none is due.
func (w *watch) look(r *round) {
	var p pause
	for f, wait := w.next(r); f != nil; f, wait = w.next(r) {
		sleep(r.ctx, wait)
		s, err := approvals.Look(r.ctx, w.pdp, f.Standing().Task())
		w.saw(r, f, s, err)
		if err == nil {
			p.ended()
			continue
		}
		var failure *authzenclient.Error
		if !errors.As(err, &failure) {
			failure = &authzenclient.Error{}
		}
		sleep(r.ctx, p.next(w.desk.o.Now(), failure.RetryAfter))
	}
}

// next is the task to be looked at, and the pause before that. Without a task one goroutine ends.
func (w *watch) next(r *round) (f *Follower, wait time.Duration) {
	w.desk.mu.Lock()
	defer w.desk.mu.Unlock()
	first := w.due.Front()
	if w.round != r || r.ctx.Err() != nil || first == nil || !w.settled && !w.alone {
		r.lookers--
		return nil, 0
	}
	f = first.Value.(*Follower)
	w.clear(f)
	if w.alone {
		turn := max(w.desk.turn, min(f.standing.RetryAfter(), apart))
		wait = min(turn, turn*mostLooks/time.Duration(w.waiting))
	}
	return f, wait
}

// saw takes the answer to a look.
func (w *watch) saw(r *round, f *Follower, s approvals.Standing, err error) {
	w.desk.mu.Lock()
	defer w.desk.mu.Unlock()
	switch {
	case w.round != r || !f.waits:
	case err != nil:
		w.owe(f)
	default:
		if f.hears(s); w.alone {
			w.owe(f)
		}
	}
}

const (
	// firstPause is the pause after one failure before the PDP is asked again, mostPause the one after many.
	firstPause = 500 * time.Millisecond
	mostPause  = 10 * time.Second
)

// pause is the time between failing attempts: longer each time, random, and never shorter than the PDP wants.
type pause struct {
	failures int
	until    time.Time
}

func (p *pause) next(now time.Time, atLeast time.Duration) time.Duration {
	d := min(firstPause<<min(p.failures, 10), mostPause)
	d = max(d/2+rand.N(d/2), atLeast)
	p.failures++
	p.until = now.Add(d)
	return d
}

// ended reports whether the last attempt had failed, now that one did not.
func (p *pause) ended() bool {
	failed := p.failures > 0
	*p = pause{}
	return failed
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
