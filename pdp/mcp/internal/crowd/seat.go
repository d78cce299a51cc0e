package crowd

import (
	"context"
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
	more  chan struct{}
}

// Leave ends that somebody listens.
func (s *Seat) Leave() {
	c := s.crowd
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(s.room.seats, s)
	if delete(s.member.seats, s); len(s.member.seats) == 0 && c.members[s.who.Key] == s.member {
		delete(c.members, s.who.Key)
	}
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

// How often somebody is asked about if that fails, and how long it is until then.
const (
	tries    = 3
	tryAgain = 500 * time.Millisecond
)

// Hear tells what there is to tell until ctx ends, or until tell fails.
func (s *Seat) Hear(ctx context.Context, tell func(rpc.Message) error) error {
	var last *posted // which was asked about in vain so often
	failed := 0
	for ctx.Err() == nil {
		p, more := s.next()
		if p == nil && !more {
			s.waits(ctx)
		}
		if p == nil {
			continue
		}
		if p != last {
			last, failed = p, 0
		}
		what, err := s.ask(ctx, p)
		if failed++; err != nil && failed < tries {
			sleep(ctx, time.Duration(failed)*tryAgain)
			continue
		}
		if err != nil && ctx.Err() == nil {
			s.crowd.o.Dropped(Unknown)
		}
		if ctx.Err() != nil || !s.passes(p, what != nil) {
			continue
		}
		if err := tell(*what); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// waits waits for more.
func (s *Seat) waits(ctx context.Context) {
	select {
	case <-s.more:
	case <-ctx.Done():
	}
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// mostPassed is how much is passed over before others have their turn.
const mostPassed = 256

// next is what it comes to next, nil if there is nothing, or if there may be more to come to.
func (s *Seat) next() (p *posted, more bool) {
	c := s.crowd
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(s.queue) > 0 {
		return s.queue[0], false
	}
	for n, p := range s.room.after(s.at) {
		what, known := c.answers.get(about{p.number, s.by})
		switch over := p.over || s.told.has(p.place) || known && what == nil; {
		case !over:
			return p, false
		case n == mostPassed:
			return nil, true
		}
		s.at = p.number
	}
	return nil, false
}

// passes goes on to what comes after news, and reports whether they are told, if they are theirs.
func (s *Seat) passes(p *posted, theirs bool) bool {
	s.crowd.mu.Lock()
	defer s.crowd.mu.Unlock()
	if p.ID == "" {
		if s.queue[0] = nil; len(s.queue) == 1 {
			s.queue = nil
		} else {
			s.queue = s.queue[1:]
		}
		return theirs
	}
	s.at = p.number
	if p.over || !theirs {
		return false
	}
	s.told.set(p.place)
	return true
}

// ask finds out what news are to whoever has the seat, nil if they are none of theirs.
func (s *Seat) ask(ctx context.Context, p *posted) (*rpc.Message, error) {
	if p.said != nil {
		return p.said, nil
	}
	c, of := s.crowd, about{p.number, s.by}
	if what, ok := c.known(of); ok {
		return what, nil
	}
	if err := s.member.asks.Take(ctx); err != nil {
		return nil, err
	}
	defer s.member.asks.Leave()
	if what, ok := c.known(of); ok { // another stream has asked just now
		return what, nil
	}
	select {
	case c.asking <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-c.asking }()
	m, ok, err := p.Say(ctx, s.who)
	if err != nil {
		return nil, err
	}
	var what *rpc.Message
	if ok {
		what = &m
	}
	c.keep(of, what)
	return what, nil
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
