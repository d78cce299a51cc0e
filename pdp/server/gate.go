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
type gate struct {
	limit    int // 0 is none
	patience time.Duration

	mu      sync.Mutex
	inside  int
	waiting int
	lines   []*line // of callers who wait, in the order of their turns
}

// line are the requests of a caller that wait, oldest first; it is never empty.
type line struct {
	caller string
	wait   []chan bool // each is told once, true to come in
}

// mostWaiting bounds the memory of those who wait.
const mostWaiting = 1024

var errBusy = errors.New("more is asked at once than can be answered in time")

// enter waits for a place. Whoever gets it calls leave, once. The error is errBusy, or
// that of ctx.
func (g *gate) enter(ctx context.Context, caller string) error {
	told := g.join(caller)
	if told == nil {
		return nil
	}
	patience := time.NewTimer(g.patience)
	defer patience.Stop()
	err := errBusy
	select {
	case let := <-told:
		return refusedUnless(let)
	case <-patience.C:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if !g.giveUp(caller, told) { // somebody made way at the last moment
		return refusedUnless(<-told)
	}
	return err
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
	if g.limit == 0 || g.inside < g.limit {
		g.inside++
		return nil
	}
	told = make(chan bool, 1)
	n := g.find(caller)
	if n < 0 {
		n = len(g.lines)
		g.lines = append(g.lines, &line{caller: caller})
	}
	g.lines[n].wait = append(g.lines[n].wait, told)
	if g.waiting++; g.waiting > mostWaiting {
		longest := slices.MaxFunc(g.lines, func(a, b *line) int { return len(a.wait) - len(b.wait) })
		g.take(slices.Index(g.lines, longest), 0) <- false
	}
	return told
}

// leave makes way for whose turn it is.
func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.lines) == 0 {
		g.inside--
		return
	}
	next := g.lines[0]
	g.take(0, len(next.wait)-1) <- true
	if len(g.lines) > 0 && g.lines[0] == next { // more of it wait, and the others come first
		g.lines = append(g.lines[1:], next)
	}
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
func (g *gate) busy() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.inside > 0
}
