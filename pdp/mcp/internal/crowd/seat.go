package crowd

import (
	"context"
	"slices"
	"time"

	"policy-service/pdp/mcp/internal/identity"
	"policy-service/pdp/mcp/internal/rpc"
)

// Seat is a stream of somebody who listens. [Crowd.Join] makes it.
type Seat struct {
	crowd  *Crowd
	room   *room
	member *member
	who    *identity.Principal
	by     token

	at    uint64    // the number of what it has come to of what stands
	told  bits      // by place, what of it it was told
	queue []*posted // of what does not stand
	owed  []debt
	more  chan struct{}
}

// Leave ends that somebody listens.
func (s *Seat) Leave() {
	c := s.crowd
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(s.room.seats, s)
	delete(s.member.seats, s)
	c.forget(s)
}

// queues has news wait that do not stand. The caller holds the crowd's lock.
func (s *Seat) queues(p *posted) {
	if len(s.queue) >= mostQueued {
		s.crowd.o.Dropped(TooSlow)
		return
	}
	s.queue = append(s.queue, p)
}

// wake has it look for what there is to tell.
func (s *Seat) wake() {
	select {
	case s.more <- struct{}{}:
	default:
	}
}

// Hear tells what there is to tell until ctx ends, or until tell fails.
func (s *Seat) Hear(ctx context.Context, tell func(rpc.Message) error) error {
	for ctx.Err() == nil {
		p, pause := s.next()
		if p == nil {
			s.waits(ctx, pause)
			continue
		}
		what, err := s.ask(ctx, p)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			s.owes(p, err)
		case s.passes(p, what != nil):
			if err := tell(*what); err != nil {
				return err
			}
		}
	}
	return ctx.Err()
}

// waits waits for more, but no longer than a pause.
func (s *Seat) waits(ctx context.Context, pause time.Duration) {
	var over <-chan time.Time
	if pause != forever {
		timer := time.NewTimer(pause)
		defer timer.Stop()
		over = timer.C
	}
	select {
	case <-s.more:
	case <-over:
	case <-ctx.Done():
	}
}

// mostPassed is how much is passed over before others have their turn.
const mostPassed = 256

// next is what it comes to next, nil if there is nothing for a while.
func (s *Seat) next() (p *posted, pause time.Duration) {
	c := s.crowd
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(s.queue) > 0 {
		return s.queue[0], 0
	}
	standing := s.room.after(s.at)
	if len(s.owed) >= mostOwed { // those of them come first
		standing = nil
	}
	for n, p := range standing {
		what, known := c.answers.get(c.about(s, p))
		switch over := p.over || s.told.has(p.place) || known && what == nil; {
		case !over:
			return p, 0
		case n == mostPassed:
			return nil, 0
		}
		s.at = p.number
	}
	return s.nextOwed(time.Now())
}

// passes goes on to what comes after news, and reports whether they are told, if they are theirs.
func (s *Seat) passes(p *posted, theirs bool) bool {
	s.crowd.mu.Lock()
	defer s.crowd.mu.Unlock()
	s.leaves(p)
	if p.ID == "" {
		return theirs
	}
	if p.over || !theirs {
		return false
	}
	s.told.set(p.place)
	return true
}

// leaves goes on to what comes after news. The caller holds the crowd's lock.
func (s *Seat) leaves(p *posted) {
	switch n := s.debt(p); {
	case n >= 0:
		s.owed = slices.Delete(s.owed, n, n+1)
	case p.ID != "":
		s.at = p.number
	case len(s.queue) == 1:
		s.queue = nil
	default:
		s.queue[0] = nil
		s.queue = s.queue[1:]
	}
}

// bits are a set of places.
type bits []uint64

func (b bits) has(n int) bool { return n/64 < len(b) && b[n/64]&(1<<(n%64)) != 0 }

func (b bits) clear(n int) {
	if n/64 < len(b) {
		b[n/64] &^= 1 << (n % 64)
	}
}

func (b *bits) set(n int) {
	for len(*b) <= n/64 {
		*b = append(*b, 0)
	}
	(*b)[n/64] |= 1 << (n % 64)
}
