package people

import (
	"container/list"
	"context"
	"errors"
	"net/http"
	"time"

	"policy-service/evaluation/authzenclient"
)

const (
	// longest is how long the PDP is asked to wait before it answers.
	longest = 30 * time.Second
	// between is the least time from one watch to the next, however quickly the PDP answers.
	between = 100 * time.Millisecond
	// apart is how long each is looked at by itself before the PDP is asked again whether it can be watched.
	apart = time.Minute
)

// watch is how one client of a PDP hears of all its tasks that are followed. It stays when nobody follows, with its cursor, and
// does nothing then.
type watch struct {
	desk      *Desk
	pdp       *authzenclient.Client
	followers map[string]map[*Follower]bool // by task
	waiting   int                           // how many of them wait
	round     *round                        // nil if nobody waits

	// cursor is what to watch after; "" begins. If settled is set, all changes since are told after it: who is looked at
	// from then on misses nothing.
	cursor  string
	settled bool
	// alone is set while the PDP cannot be watched: each is looked at by itself, again and again.
	alone bool
	// due are those that are to be looked at.
	due   list.List
	pause pause
}

// round is the time from the first that waits to the last.
type round struct {
	ctx     context.Context
	end     context.CancelFunc
	lookers int
}

// add has f wait. The caller holds the lock, as that of every method here that takes no context.
func (w *watch) add(f *Follower) {
	task := f.standing.Handle().TaskID()
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
	w.desk.begins()
	w.owe(f)
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

// rest ends that f waits. If it was the last, the watch ends.
func (w *watch) rest(f *Follower) {
	w.clear(f)
	if !f.waits {
		return
	}
	f.waits = false
	w.waiting--
	w.desk.waiting--
	if w.waiting == 0 && w.round != nil {
		w.round.end()
		w.round = nil
	}
}

func (w *watch) remove(f *Follower) {
	w.rest(f)
	task := f.standing.Handle().TaskID()
	delete(w.followers[task], f)
	if len(w.followers[task]) == 0 {
		delete(w.followers, task)
	}
}

// owe has f be looked at, and clear not.
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
	for w.resume(r.ctx); r.ctx.Err() == nil; {
		began := w.desk.o.Now()
		after := w.after()
		changes, err := w.pdp.Watch(r.ctx, after, longest)
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
}

// resume waits out what the PDP asked for in a round before.
func (w *watch) resume(ctx context.Context) {
	w.desk.mu.Lock()
	left := w.pause.until.Sub(w.desk.o.Now())
	w.desk.mu.Unlock()
	sleep(ctx, left)
}

func (w *watch) after() string {
	w.desk.mu.Lock()
	defer w.desk.mu.Unlock()
	return w.cursor
}

// heard takes what the PDP says that has changed.
func (w *watch) heard(r *round, after string, changes authzenclient.Changes) {
	w.desk.mu.Lock()
	defer w.desk.mu.Unlock()
	if w.round != r {
		return
	}
	if failed := w.pause.ended(); failed || w.alone {
		w.desk.o.Logger.Info("the PDP says again what has become of approval requests")
	}
	w.alone = false
	if w.cursor = changes.Cursor(); after == "" { // what happened before is told of those alone that wait for people
		w.oweAll()
	}
	for _, id := range changes.TaskIDs() {
		for f := range w.followers[id] {
			if s, ok := changes.Of(f.standing.Handle()); ok {
				w.clear(f)
				f.hears(s)
			}
		}
	}
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

// failed sees to a watch that failed. What was said of any task stays as it was.
func (w *watch) failed(r *round, after string, err error) {
	var failure *authzenclient.Error
	if !errors.As(err, &failure) {
		failure = &authzenclient.Error{}
	}
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
	case anew && failure.Status == http.StatusGone:
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
