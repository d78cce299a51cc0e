package server

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// gate lets so many requests be worked on at once. Those beyond wait a moment, and are
// refused then: work that is late is of no use to whoever asked, and only makes the
// next late as well.
//
// Callers take turns, so that one who asks too much makes only itself wait. Of one
// caller the newest is let in first: while more comes than can be done, some must wait
// in vain, and whoever came last still has the time to use an answer. First come, first
// served would have everybody wait as long as anybody may.
//
// Where a caller has a share it never has more places than that, whoever else waits or
// does not, and the next place is for who has fewest.
type gate struct {
	limit    int           // 0 is none
	share    int           // of one caller; 0 is the whole
	queue    int           // how many of one caller wait; 0 is as many as wait at all
	patience time.Duration // 0 is as long as the context of who waits

	mu      sync.Mutex
	inside  int
	of      map[string]int // how many of a caller are inside, where there are shares
	waiting int
	lines   []*line // of callers who wait, in the order of their turns
}

// line are the requests of a caller that wait, oldest first; it is never empty.
type line struct {
	caller string
	wait   []chan bool // each is told once, true to come in
}

const (
	// mostWaiting bounds the memory of those who wait.
	mostWaiting = 1024
	// longQueue is how many of one caller wait where that may take long: each keeps a
	// connection.
	longQueue = 64
)

var errBusy = errors.New("more is asked at once than can be answered in time")

// enter waits for a place. Whoever gets it calls leave, once. The error is errBusy, or
// that of ctx.
func (g *gate) enter(ctx context.Context, caller string) error {
	told := g.join(caller)
	if told == nil {
		return nil
	}
	return g.wait(ctx, caller, told, nil, nil)
}

// wait waits to be told. It looks around with each tick.
func (g *gate) wait(ctx context.Context, caller string, told chan bool, tick <-chan time.Time, look func()) error {
	var tired <-chan time.Time
	if g.patience > 0 {
		patience := time.NewTimer(g.patience)
		defer patience.Stop()
		tired = patience.C
	}
	for {
		err := errBusy
		select {
		case let := <-told:
			return refusedUnless(let)
		case <-tick:
			look()
			continue
		case <-tired:
		case <-ctx.Done():
			err = ctx.Err()
		}
		if !g.giveUp(caller, told) { // somebody made way at the last moment
			return refusedUnless(<-told)
		}
		return err
	}
}

func refusedUnless(let bool) error {
	if let {
		return nil
	}
	return errBusy
}

// join takes a place where there is one, and otherwise returns what tells of one.
func (g *gate) join(caller string) (told chan bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.limit == 0 || g.inside < g.limit && g.hasRoom(caller) {
		g.letIn(caller)
		return nil
	}
	told = make(chan bool, 1)
	n := g.find(caller)
	if n < 0 {
		n = len(g.lines)
		g.lines = append(g.lines, &line{caller: caller})
	}
	g.lines[n].wait = append(g.lines[n].wait, told)
	if g.waiting++; g.queue > 0 && len(g.lines[n].wait) > g.queue {
		g.take(n, 0) <- false
	} else if g.waiting > mostWaiting {
		longest := slices.MaxFunc(g.lines, func(a, b *line) int { return len(a.wait) - len(b.wait) })
		g.take(slices.Index(g.lines, longest), 0) <- false
	}
	return told
}

// hasRoom reports whether a caller has less than its share.
func (g *gate) hasRoom(caller string) bool { return g.share == 0 || g.of[caller] < g.share }

func (g *gate) letIn(caller string) {
	g.inside++
	if g.share > 0 {
		if g.of == nil {
			g.of = map[string]int{}
		}
		g.of[caller]++
	}
}

// leave makes way for whose turn it is.
func (g *gate) leave(caller string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside--
	if g.share > 0 {
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
	g.take(n, len(next.wait)-1) <- true
	if n < len(g.lines) && g.lines[n] == next { // more of it wait, and the others come first
		g.lines = append(slices.Delete(g.lines, n, n+1), next)
	}
}

// next is the line whose turn it is, -1 where nobody waits who may come in.
func (g *gate) next() int {
	next := -1
	for n, l := range g.lines {
		if g.share == 0 {
			return n
		}
		if g.hasRoom(l.caller) && (next < 0 || g.of[l.caller] < g.of[g.lines[next].caller]) {
			next = n
		}
	}
	return next
}

// wanted reports whether anybody waits besides a caller.
func (g *gate) wanted(caller string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.ContainsFunc(g.lines, func(l *line) bool { return l.caller != caller })
}

// giveUp reports whether somebody was still waiting, and waits no more.
func (g *gate) giveUp(caller string, told chan bool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if n := g.find(caller); n >= 0 {
		if at := slices.Index(g.lines[n].wait, told); at >= 0 {
			g.take(n, at)
			return true
		}
	}
	return false
}

// find returns the place of a caller's line, -1 where nothing of it waits.
func (g *gate) find(caller string) int {
	return slices.IndexFunc(g.lines, func(l *line) bool { return l.caller == caller })
}

// take takes one out of a line.
func (g *gate) take(n, at int) chan bool {
	l := g.lines[n]
	told := l.wait[at]
	l.wait = slices.Delete(l.wait, at, at+1)
	if len(l.wait) == 0 {
		g.lines = slices.Delete(g.lines, n, n+1)
	}
	g.waiting--
	return told
}

// busy reports whether anything is being worked on.
func (g *gate) busy() bool { return g.count() > 0 }

// count is how many are inside.
func (g *gate) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.inside
}
