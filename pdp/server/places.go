package server

import (
	"context"
	"time"
)

// places are a gate for what may wait for the other side: for a body to come, or for an
// answer to be taken. Whoever waits too long makes way, where all places are taken, for a
// caller who has fewer.
type places struct {
	gate
	held map[*place]bool // guarded by gate.mu
}

// place is one that is held.
type place struct {
	of     *places
	caller string
	end    func()    // ends what holds it, by what it waits for
	since  time.Time // since when it waits for the other side; zero while it does not. Guarded by gate.mu, as pushed
	pushed bool
}

const (
	// makesWay is how long a place waits for the other side before it makes way.
	makesWay = 2 * time.Second
	lookWays = makesWay / 8
)

// take waits for a place. Whoever gets one calls leave, once.
func (p *places) take(ctx context.Context, caller string, end func()) (*place, error) {
	if told := p.join(caller); told != nil {
		tick := time.NewTicker(lookWays)
		defer tick.Stop()
		p.push(caller)
		if err := p.wait(ctx, caller, told, tick.C, func() { p.push(caller) }); err != nil {
			return nil, err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held == nil {
		p.held = map[*place]bool{}
	}
	one := &place{of: p, caller: caller, end: end}
	p.held[one] = true
	return one, nil
}

// push ends what has waited for the other side for longest, where a caller has fewer
// places than whoever that is.
func (p *places) push(caller string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.hasRoom(caller) { // it waits behind itself
		return
	}
	var slowest *place
	for one := range p.held {
		if time.Since(one.since) < makesWay || one.since.IsZero() || p.gate.of[one.caller] <= p.gate.of[caller] {
			continue
		}
		if slowest == nil || one.since.Before(slowest.since) {
			slowest = one
		}
	}
	if slowest != nil {
		delete(p.held, slowest) // once
		slowest.pushed = true
		slowest.end()
	}
}

// waits says that the place waits for the other side from now on, works that it does not.
func (p *place) waits() { p.at(time.Now()) }
func (p *place) works() { p.at(time.Time{}) }

func (p *place) at(since time.Time) {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	p.since = since
}

func (p *place) leave() {
	p.of.mu.Lock()
	delete(p.of.held, p)
	p.of.mu.Unlock()
	p.of.gate.leave(p.caller)
}

// wasPushed reports whether it had to make way.
func (p *place) wasPushed() bool {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	return p.pushed
}
