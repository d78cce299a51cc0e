// Package people waits for what people say: one watch of each PDP client, however many calls wait.
//
// Begin with [New] and [Desk.Follow], which gives a [Follower]. Its [Follower.Decided] closes once people are not waited for
// any more. [Desk.Hear] hears of all that waits. The package asks nobody, uses no approval, and decides nothing: what follows from an end is for who follows.
//
// Nobody's wait ends because a PDP does not answer. The watch pauses and goes on, and each who waits does so for as long as he
// likes. An end is always the PDP's own word of that very task.
package people

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
	Logger *slog.Logger     // nil is none
	Now    func() time.Time // nil is time.Now
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
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	d := &Desk{o: o, turn: turn, watches: map[*authzenclient.Client]*watch{}}
	d.ctx, d.end = context.WithCancel(context.Background())
	return d
}

// Follow waits for what people say. S is what pdp said of it last: nothing is missed that has happened since. After
// [Desk.Close] nobody is heard any more, and Decided never closes unless s is decided.
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
		w = &watch{desk: d, pdp: pdp, followers: map[string]map[*Follower]bool{}}
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
