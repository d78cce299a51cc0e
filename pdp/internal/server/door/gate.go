package door

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"
)

// Gate lets a limited number of requests be worked on at once. Further requests wait a moment and are then refused:
// an answer that comes too late is of no use to its caller, and makes the next answer late as well.
//
// Callers take turns, so a caller that asks too much makes only itself wait. The newest request of a caller enters
// first: while more arrives than can be done, some requests must wait in vain, and the newest one has the most time
// left to use its answer. In the order of arrival every request would wait as long as any request may.
//
// If callers have a share, no caller ever has more places than its share, even if no other caller waits, and the next
// place goes to the caller with the fewest places.
//
// The fields are set before the first use.
type Gate struct {
	Limit    int           // how many are inside at once; 0 is no limit
	Share    int           // how many of one caller; 0 is as many as there are places
	Queue    int           // how many of one caller wait; 0 is as many as may wait at all
	Patience time.Duration // how long one waits; 0 is as long as its context allows

	mu      sync.Mutex
	inside  int
	of      map[string]int // how many of each caller are inside, if there are shares
	waiting int
	lines   []*line // one for each caller that waits, in the order of their turns
}

// line are the waiting requests of one caller, oldest first. It is never empty.
type line struct {
	caller string
	wait   []chan bool // each gets one value: true lets it in
}

const (
	// mostWaiting limits the memory of all that wait.
	mostWaiting = 1024
	// LongQueue is the Queue of a gate at which the wait may be long: each request that waits keeps a connection.
	LongQueue = 64
	// DecisionQueue is the Queue of a gate for decisions. With fewer connections, a caller is never refused because they
	// are too many.
	DecisionQueue = 1000
)

// ErrBusy is the error of a request that got no place.
var ErrBusy = errors.New("more is asked at once than can be answered in time")

// Enter waits for a place. A caller that gets one calls Leave once. The error is ErrBusy if there is no room to wait
// or the wait is too long, and that of ctx if ctx ends.
func (g *Gate) Enter(ctx context.Context, caller string) error {
	admitted := g.join(caller)
	if admitted == nil {
		return nil
	}
	return g.wait(ctx, caller, admitted, nil, nil)
}

// wait waits until admitted has a value. It calls look with each tick; without a tick, look may be nil.
func (g *Gate) wait(ctx context.Context, caller string, admitted chan bool, tick <-chan time.Time, look func()) error {
	var tired <-chan time.Time
	if g.Patience > 0 {
		patience := time.NewTimer(g.Patience)
		defer patience.Stop()
		tired = patience.C
	}
	for {
		err := ErrBusy
		select {
		case let := <-admitted:
			return refusedUnless(let)
		case <-tick:
			look()
			continue
		case <-tired:
		case <-ctx.Done():
			err = ctx.Err()
		}
		if !g.giveUp(caller, admitted) { // a place became free at the last moment
			return refusedUnless(<-admitted)
		}
		return err
	}
}

func refusedUnless(let bool) error {
	if let {
		return nil
	}
	return ErrBusy
}

// join takes a place if one is free and returns nil. Otherwise it returns the channel that says when to enter.
func (g *Gate) join(caller string) (admitted chan bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.Limit == 0 || g.inside < g.Limit && g.hasRoom(caller) {
		g.letIn(caller)
		return nil
	}
	admitted = make(chan bool, 1)
	n := g.find(caller)
	if n < 0 {
		n = len(g.lines)
		g.lines = append(g.lines, &line{caller: caller})
	}
	g.lines[n].wait = append(g.lines[n].wait, admitted)
	if g.waiting++; g.Queue > 0 && len(g.lines[n].wait) > g.Queue {
		g.remove(n, 0) <- false
	} else if g.waiting > mostWaiting {
		longest := slices.MaxFunc(g.lines, func(a, b *line) int { return len(a.wait) - len(b.wait) })
		g.remove(slices.Index(g.lines, longest), 0) <- false
	}
	return admitted
}

// hasRoom reports whether a caller has fewer places than its share.
func (g *Gate) hasRoom(caller string) bool { return g.Share == 0 || g.of[caller] < g.Share }

func (g *Gate) letIn(caller string) {
	g.inside++
	if g.Share > 0 {
		if g.of == nil {
			g.of = map[string]int{}
		}
		g.of[caller]++
	}
}

// Leave gives a place back, and lets in the request whose turn it is.
func (g *Gate) Leave(caller string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside--
	if g.Share > 0 {
		if g.of[caller]--; g.of[caller] == 0 {
			delete(g.of, caller)
		}
	}
	n := g.next()
	if n < 0 {
		return
	}
	next := g.lines[n]
	g.letIn(next.caller)
	g.remove(n, len(next.wait)-1) <- true
	if n < len(g.lines) && g.lines[n] == next { // more of this caller wait, and the other callers come first
		g.lines = append(slices.Delete(g.lines, n, n+1), next)
	}
}

// next is the index of the line whose turn it is; -1 if no waiting request may enter.
func (g *Gate) next() int {
	next := -1
	for n, l := range g.lines {
		if g.Share == 0 {
			return n
		}
		if g.hasRoom(l.caller) && (next < 0 || g.of[l.caller] < g.of[g.lines[next].caller]) {
			next = n
		}
	}
	return next
}

// wanted reports whether another caller than this one waits.
func (g *Gate) wanted(caller string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.ContainsFunc(g.lines, func(l *line) bool { return l.caller != caller })
}

// giveUp takes a waiting request out of its line. It reports false if the gate took it out first: then admitted has the
// outcome, and a request that was let in has a place.
func (g *Gate) giveUp(caller string, admitted chan bool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if n := g.find(caller); n >= 0 {
		if at := slices.Index(g.lines[n].wait, admitted); at >= 0 {
			g.remove(n, at)
			return true
		}
	}
	return false
}

// find returns the index of a caller's line; -1 if no request of the caller waits.
func (g *Gate) find(caller string) int {
	return slices.IndexFunc(g.lines, func(l *line) bool { return l.caller == caller })
}

// remove takes one request out of a line.
func (g *Gate) remove(n, at int) chan bool {
	l := g.lines[n]
	admitted := l.wait[at]
	l.wait = slices.Delete(l.wait, at, at+1)
	if len(l.wait) == 0 {
		g.lines = slices.Delete(g.lines, n, n+1)
	}
	g.waiting--
	return admitted
}

// Inside is how many are inside.
func (g *Gate) Inside() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.inside
}

// Shares is how many of each caller are inside, at a gate with shares.
func (g *Gate) Shares() map[string]int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return maps.Clone(g.of)
}

// Waiting is how many of each caller wait.
func (g *Gate) Waiting() map[string]int {
	g.mu.Lock()
	defer g.mu.Unlock()
	waiting := map[string]int{}
	for _, l := range g.lines {
		waiting[l.caller] = len(l.wait)
	}
	return waiting
}
