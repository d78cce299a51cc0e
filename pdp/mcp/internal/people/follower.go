package people

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
	// due is its place among those that are to be looked at, nil if it is not among them.
	due *list.Element
	// waits until it is decided or stopped.
	waits bool
}

// Decided is closed once people are not waited for any more: they have decided, or what they were asked has ended otherwise.
func (f *Follower) Decided() <-chan struct{} { return f.decided }

// Standing is how far it is.
func (f *Follower) Standing() approvals.Standing {
	d := f.watch.desk
	d.mu.Lock()
	defer d.mu.Unlock()
	return f.standing
}

// Look looks at once how far it is, for who knows that people have said something. If that fails, it is heard later.
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

// Heed looks at once at all who follow an approval request, for who knows that people have said something about it. It does not
// wait for what that shows.
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

// Alone reports whether nobody else in this process follows the task. Whoever ends the task if he is the last calls Stop
// first: of several who leave at the same time, one at least is then alone.
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

// Stop ends the wait. It must be called; more calls do nothing. What was said until then stays.
func (f *Follower) Stop() {
	d := f.watch.desk
	d.mu.Lock()
	defer d.mu.Unlock()
	f.watch.remove(f)
}

// hears takes what is said of its task. What is decided stays so: an older word may come later.
func (f *Follower) hears(s approvals.Standing) {
	if !f.standing.Pending() {
		return
	}
	if f.standing = s; !s.Pending() {
		close(f.decided)
		f.watch.rest(f)
	}
}
