// Package desk waits for the decisions of people: with one watch for each PDP client, however many calls wait.
//
// Begin with [New] and [Desk.Follow], which gives a [Follower]. Its [Follower.Decided] closes once the task waits for people
// no longer. [Desk.Hear] reports changes of all tasks. The package sends no question to people, uses no approval, and decides
// nothing: the caller acts on the end of a task.
//
// A wait goes on while a PDP does not answer: the watch pauses and resumes, and each call waits for as long as it likes. A
// task ends only by the PDP's own answer about that very task.
package desk

import (
	"container/list"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"policy-service/evaluation/authzenclient"
	"policy-service/evaluation/authzenclient/approvals"
)

// Options are what a [Desk] is made with.
type Options struct {
	Logger *slog.Logger
	Now    func() time.Time
}

// Desk is where calls wait for people. Make one with [New].
type Desk struct {
	o   Options
	ctx context.Context
	end context.CancelFunc
	// running are the goroutines of all watches.
	running sync.WaitGroup

	// mu guards what follows, and all that watches and followers have.
	mu      sync.Mutex
	closed  bool
	turn    time.Duration // usually turn
	waiting int
	watches map[*authzenclient.Client]*watch
}

// New makes a desk. Its [Desk.Close] must be called.
func New(o Options) *Desk {
	d := &Desk{o: o, turn: turn, watches: map[*authzenclient.Client]*watch{}}
	d.ctx, d.end = context.WithCancel(context.Background())
	return d
}

// Follow returns at once with a follower that waits for the decision of people. S is the last answer of pdp about it;
// nothing that happened since is missed. After [Desk.Close] no more answers come, and Decided never closes unless s is
// decided.
func (d *Desk) Follow(pdp *authzenclient.Client, s approvals.Standing) *Follower {
	d.mu.Lock()
	defer d.mu.Unlock()
	w := d.watch(pdp)
	f := &Follower{watch: w, standing: s, decided: make(chan struct{})}
	w.add(f)
	return f
}

// watch is that of a client of a PDP. The caller holds the lock.
func (d *Desk) watch(pdp *authzenclient.Client) *watch {
	w := d.watches[pdp]
	if w == nil {
		w = &watch{desk: d, pdp: pdp, followers: map[string]map[*Follower]bool{}, hearers: map[*func()]bool{}}
		d.watches[pdp] = w
	}
	return w
}

// Waiting is how many wait.
func (d *Desk) Waiting() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.waiting
}

// Close ends all watches, and returns when none of them runs.
func (d *Desk) Close() {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.end()
	d.running.Wait()
}

// Follower waits for one task. [Desk.Follow] makes it.
type Follower struct {
	watch    *watch
	standing approvals.Standing
	decided  chan struct{}
	// due is its place in the queue of tasks to be looked at; nil if it is not there.
	due *list.Element
	// waits until it is decided or stopped.
	waits bool
}

// Decided is closed once the task waits for people no longer: they have decided, or the task has ended otherwise.
func (f *Follower) Decided() <-chan struct{} { return f.decided }

// Standing is the last known state of the task.
func (f *Follower) Standing() approvals.Standing {
	d := f.watch.desk
	d.mu.Lock()
	defer d.mu.Unlock()
	return f.standing
}

// Look asks for the state of the task at once: its caller has heard of a decision. If that fails, the watch learns it later.
func (f *Follower) Look(ctx context.Context) (approvals.Standing, error) {
	s, err := approvals.Look(ctx, f.watch.pdp, f.Standing().Task())
	if err != nil {
		return s, err
	}
	d := f.watch.desk
	d.mu.Lock()
	defer d.mu.Unlock()
	f.hears(s)
	return f.standing, nil
}

// Heed has all followers of an approval request look at once, and does not wait: its caller has heard of a decision about it.
func (d *Desk) Heed(pdp *authzenclient.Client, approval string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	w := d.watches[pdp]
	if w == nil || d.closed {
		return
	}
	var all []*Follower
	for _, of := range w.followers {
		for f := range of {
			if f.waits && slices.Contains(f.standing.Approvals(), approval) {
				all = append(all, f)
			}
		}
	}
	if len(all) > 0 {
		d.running.Go(func() {
			for _, f := range all {
				f.Look(d.ctx)
			}
		})
	}
}

// Alone reports whether no other follower in this process follows the task. A caller that ends the task if it is the last
// calls Stop first: of several that leave at the same time, at least one is alone then.
func (f *Follower) Alone() bool {
	d := f.watch.desk
	d.mu.Lock()
	defer d.mu.Unlock()
	all := f.watch.followers[f.standing.Task().ID()]
	return len(all) == 0 || len(all) == 1 && all[f]
}

// Stop ends the wait. It must be called; more calls do nothing. The standing stays.
func (f *Follower) Stop() {
	d := f.watch.desk
	d.mu.Lock()
	defer d.mu.Unlock()
	w, task := f.watch, f.standing.Task().ID()
	w.rest(f)
	if delete(w.followers[task], f); len(w.followers[task]) == 0 {
		delete(w.followers, task)
	}
}

// hears takes an answer about its task. A decided task stays decided: an older answer may come later.
func (f *Follower) hears(s approvals.Standing) {
	if !f.standing.Pending() {
		return
	}
	if f.standing = s; !s.Pending() {
		close(f.decided)
		f.watch.rest(f)
	}
}

// Hear calls changed whenever approvals of a client of a PDP may wait for people that did not before, or that other people
// may decide about now: also those that other processes asked for by the same credential. While the PDP cannot be watched,
// there are no calls; what changed meanwhile is reported afterwards. Stop ends the calls; it must be called, and more calls
// do nothing.
//
// Changed must neither wait nor call the desk.
func (d *Desk) Hear(pdp *authzenclient.Client, changed func()) (stop func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	w := d.watch(pdp)
	w.hearers[&changed] = true
	w.begin()
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(w.hearers, &changed)
		w.end()
	}
}

// report calls the hearers if an approval of these tasks waits. The caller holds the lock.
func (w *watch) report(changes approvals.Changes) {
	for _, waits := range changes.Waiting() {
		if waits {
			for changed := range w.hearers {
				(*changed)()
			}
			return
		}
	}
}
