// Package people waits for the decisions of people: with one watch for each PDP client, however many calls wait.
//
// Begin with [New] and [Desk.Follow], which gives a [Follower]. Its [Follower.Decided] closes once the task waits for people
// no longer. [Desk.Hear] reports changes of all tasks. The package sends no question to people, uses no approval, and decides
// nothing: the caller acts on the end of a task.
//
// A wait goes on while a PDP does not answer: the watch pauses and resumes, and each call waits for as long as it likes. A
// task ends only by the PDP's own answer about that very task.
package desk

import (
	"context"
	"log/slog"
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
