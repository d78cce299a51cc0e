package desk

import (
	"container/list"
	"context"
	"slices"

	"policy-service/evaluation/authzenclient"
	"policy-service/evaluation/authzenclient/approvals"
)

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

// Look asks for the state of the task at once, for a caller that has heard of a decision. If that fails, the watch learns it
// later.
func (f *Follower) Look(ctx context.Context) {
	s, err := approvals.Look(ctx, f.watch.pdp, f.Standing().Task())
	if err != nil {
		return
	}
	d := f.watch.desk
	d.mu.Lock()
	defer d.mu.Unlock()
	f.hears(s)
}

// Heed has all followers of an approval request look at once, for a caller that has heard of a decision about it. It does not
// wait for the result.
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
	others := len(all)
	if all[f] {
		others--
	}
	return others == 0
}

// Stop ends the wait. It must be called; more calls do nothing. The standing stays.
func (f *Follower) Stop() {
	d := f.watch.desk
	d.mu.Lock()
	defer d.mu.Unlock()
	f.watch.remove(f)
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
