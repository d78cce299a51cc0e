package desk

import (
	"container/list"
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"time"

	"policy-service/evaluation/authzenclient"
	"policy-service/evaluation/authzenclient/approvals"
)

const (
	// longest is how long the PDP may wait before it answers.
	longest = 30 * time.Second
	// between is the least time from one watch to the next, however quickly the PDP answers.
	between = 100 * time.Millisecond
	// apart is how long tasks are looked at one by one before the PDP is asked again whether it can be watched.
	apart = time.Minute
)

// watch asks one client of a PDP about all followed tasks. Without followers it keeps its cursor, and does nothing.
type watch struct {
	desk      *Desk
	pdp       *authzenclient.Client
	followers map[string]map[*Follower]bool // by task
	waiting   int                           // followers that wait
	hearers   map[*func()]bool
	round     *round // nil without waiting followers and hearers

	// cursor is the place of the last known change; "" begins. Once settled is set, all later changes come after it: a look
	// from then on misses nothing.
	cursor  string
	settled bool
	// alone is set while the PDP cannot be watched: each task is looked at by itself, again and again.
	alone bool
	// due are the tasks to be looked at.
	due   list.List
	pause pause
}

// round is the time from the first waiting follower or hearer to the last.
type round struct {
	ctx     context.Context
	end     context.CancelFunc
	lookers int
}

// add makes f wait. The caller holds the lock, as with every method here that takes no context.
func (w *watch) add(f *Follower) {
	task := f.standing.Task().ID()
	of := w.followers[task]
	if of == nil {
		of = map[*Follower]bool{}
		w.followers[task] = of
	}
	of[f] = true
	if !f.standing.Pending() {
		close(f.decided)
		return
	}
	f.waits = true
	w.waiting++
	w.desk.waiting++
	w.owe(f)
	w.begin()
}

// begin starts the watch, and the looks at due tasks.
func (w *watch) begin() {
	if w.desk.closed {
		return
	}
	if w.round == nil {
		w.round = &round{}
		w.round.ctx, w.round.end = context.WithCancel(w.desk.ctx)
		r := w.round
		w.desk.running.Go(func() { w.run(r) })
	}
	w.staff()
}

// end ends the watch if there are no waiting followers and no hearers.
func (w *watch) end() {
	if w.waiting == 0 && len(w.hearers) == 0 && w.round != nil {
		w.round.end()
		w.round = nil
	}
}

// rest ends the wait of f. The watch ends with the last one.
func (w *watch) rest(f *Follower) {
	w.clear(f)
	if !f.waits {
		return
	}
	f.waits = false
	w.waiting--
	w.desk.waiting--
	w.end()
}

// owe puts f among the due, and clear takes it out.
func (w *watch) owe(f *Follower) {
	if f.due == nil && f.waits {
		f.due = w.due.PushBack(f)
	}
}

func (w *watch) clear(f *Follower) {
	if f.due != nil {
		w.due.Remove(f.due)
		f.due = nil
	}
}

// run watches until the round is over.
func (w *watch) run(r *round) {
	defer r.end()
	w.desk.mu.Lock()
	left := w.pause.until.Sub(w.desk.o.Now()) // of a pause that the PDP asked for in an earlier round
	w.desk.mu.Unlock()
	for sleep(r.ctx, left); r.ctx.Err() == nil; {
		w.once(r)
	}
}

func (w *watch) once(r *round) {
	began := w.desk.o.Now()
	w.desk.mu.Lock()
	after := w.cursor
	w.desk.mu.Unlock()
	changes, err := approvals.Watch(r.ctx, w.pdp, after, longest)
	switch {
	case r.ctx.Err() != nil:
	case err != nil:
		w.failed(r, after, err)
	default:
		w.heard(r, after, changes)
		if !changes.More() {
			sleep(r.ctx, between-w.desk.o.Now().Sub(began))
		}
	}
}

// heard takes the changes that the PDP reports.
func (w *watch) heard(r *round, after string, changes approvals.Changes) {
	w.desk.mu.Lock()
	defer w.desk.mu.Unlock()
	if w.round != r {
		return
	}
	if failed := w.pause.ended(); failed || w.alone {
		w.desk.o.Logger.Info("the PDP says again what has become of approval requests")
	}
	w.alone = false
	if w.cursor = changes.Cursor(); after == "" { // earlier changes are reported only for tasks that wait for people
		w.oweAll()
	}
	for _, id := range changes.TaskIDs() {
		for f := range w.followers[id] {
			if s, ok := changes.Of(f.standing.Task()); ok {
				w.clear(f)
				f.hears(s)
			}
		}
	}
	w.report(changes)
	w.settled = w.settled && after != "" || !changes.More()
	w.staff()
}

func (w *watch) oweAll() {
	for _, of := range w.followers {
		for f := range of {
			w.owe(f)
		}
	}
}

// failed handles the error of a watch. The last known state of every task stays.
func (w *watch) failed(r *round, after string, err error) {
	failure := failureOf(err)
	anew := failure.Kind == authzenclient.Refused && after != ""
	pause, first := time.Duration(0), false
	w.desk.mu.Lock()
	if w.round != r {
		w.desk.mu.Unlock()
		return
	}
	switch {
	case failure.Status == http.StatusNotFound, failure.Status == http.StatusMethodNotAllowed,
		failure.Kind == authzenclient.NotAsked, failure.Kind == authzenclient.Odd: // it cannot be watched
		pause, first = apart, !w.alone
		w.alone = true
		w.oweAll()
		w.staff()
	case anew && failure.Status == http.StatusGone: // the PDP could answer so each time
		pause = between
	default:
		first = w.pause.failures == 0
		pause = w.pause.next(w.desk.o.Now(), failure.RetryAfter)
	}
	if anew {
		w.cursor, w.settled = "", false
	}
	w.desk.mu.Unlock()
	if first {
		w.desk.o.Logger.Warn("the PDP does not say what has become of approval requests; whoever waits goes on waiting", "error", err)
	}
	sleep(r.ctx, pause)
}

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
		sleep(r.ctx, p.next(w.desk.o.Now(), failureOf(err).RetryAfter))
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

// failureOf is an error of the client, the zero value of others.
func failureOf(err error) *authzenclient.Error {
	failure := &authzenclient.Error{}
	_ = errors.As(err, &failure)
	return failure
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
