package door

import (
	"cmp"
	"context"
	"time"
)

// Places is a gate for requests that may wait for the other side: for a body to arrive, or for an answer to be taken.
// If all places are taken, a request that has waited too long for the other side makes way for a caller that has fewer
// places.
type Places struct {
	Gate
	// MakesWay is how long a place waits for the other side before it makes way; 0 is [MakesWay].
	MakesWay time.Duration

	held map[*Place]bool // guarded by Gate.mu
}

// Place is one place that is held.
type Place struct {
	in     *Places
	caller string
	end    func()    // ends the wait of the holder for the other side
	since  time.Time // when the wait for the other side began; zero if there is none. Guarded by Gate.mu, as is pushed
	pushed bool
}

const (
	// MakesWay is how long a place usually waits for the other side before it makes way.
	MakesWay = 2 * time.Second
	lookWays = 8 // so often in that time a caller without a place looks
)

// Take waits for a place, whose holder calls [Place.Leave] once. end is called if the place has to make way.
func (p *Places) Take(ctx context.Context, caller string, end func()) (*Place, error) {
	if admitted := p.join(caller); admitted != nil {
		tick := time.NewTicker(p.makesWay() / lookWays)
		defer tick.Stop()
		p.push(caller)
		if err := p.wait(ctx, caller, admitted, tick.C, func() { p.push(caller) }); err != nil {
			return nil, err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held == nil {
		p.held = map[*Place]bool{}
	}
	one := &Place{in: p, caller: caller, end: end}
	p.held[one] = true
	return one, nil
}

func (p *Places) makesWay() time.Duration { return cmp.Or(p.MakesWay, MakesWay) }

// push ends the place that has waited for the other side for longest, if its holder has more places than caller.
func (p *Places) push(caller string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.hasRoom(caller) { // the caller waits behind its own requests
		return
	}
	var slowest *Place
	for one := range p.held {
		if time.Since(one.since) < p.makesWay() || one.since.IsZero() || p.of[one.caller] <= p.of[caller] {
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

// Waits says that the place waits for the other side from now on, Works that it does not.
func (p *Place) Waits() { p.at(time.Now()) }

// Works is the opposite of [Place.Waits].
func (p *Place) Works() { p.at(time.Time{}) }

func (p *Place) at(since time.Time) {
	p.in.mu.Lock()
	defer p.in.mu.Unlock()
	p.since = since
}

// Leave gives the place back.
func (p *Place) Leave() {
	p.in.mu.Lock()
	delete(p.in.held, p)
	p.in.mu.Unlock()
	p.in.Gate.Leave(p.caller)
}

// WasPushed reports whether the place had to make way.
func (p *Place) WasPushed() bool {
	p.in.mu.Lock()
	defer p.in.mu.Unlock()
	return p.pushed
}
