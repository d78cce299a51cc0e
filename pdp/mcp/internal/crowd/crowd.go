// Package crowd tells those who listen what there is to tell: to all of a tenant whom it concerns, or to one of them.
//
// Begin with [New] and [Crowd.Join], which gives a [Seat]; [Seat.Hear] tells what stands already, and then what comes.
// [Crowd.Post] has something told, and [Crowd.Withdraw] has it told to nobody more. Whom it concerns is said by [News.Say], which
// is asked once for each principal, however many streams they have, and for few at a time: a crowd is no reason to overrun the PDP.
//
// The package keeps what stands and who sits, decides nothing, and knows no message but by what it is given.
package crowd

import (
	"cmp"
	"context"
	"sync"

	"policy-service/evaluation"
	"policy-service/pdp/mcp/internal/identity"
	"policy-service/pdp/mcp/internal/rpc"
)

// News are something to tell.
type News struct {
	// ID names what stands until it is withdrawn, and is told once to each who listens. "" is told to whoever listens now.
	ID string
	// Tenant is whose it is.
	Tenant string
	// Say is the message for somebody. It is not ok if it is none of theirs. With an error nobody knows, and somebody else's
	// question, or their own next stream, may find out.
	Say func(ctx context.Context, who *identity.Principal) (m rpc.Message, ok bool, err error)
}

// Options are what a [Crowd] is made with. All are needed.
type Options struct {
	// Dropped counts what somebody did not hear, and why.
	Dropped func(reason string)
}

const (
	// mostAsking is how many are asked about at a time.
	mostAsking = 4
	// mostStanding is how much stands at a time, and mostQueued how much waits to be told to one.
	mostStanding = 8192
	mostQueued   = 8192
)

// Crowd is who listens.
type Crowd struct {
	o      Options
	asking chan struct{}

	mu       sync.Mutex // guards what follows, and what seats have
	seats    map[*Seat]bool
	standing map[string]*posted
	order    []*posted // of what stands, the oldest first; withdrawn ones among them
}

// posted are news, and what was found out about whom they concern.
type posted struct {
	News
	over bool // it was withdrawn

	mu   sync.Mutex
	whom map[string]said // by principal
}

type said struct {
	message rpc.Message
	ok      bool
}

// New makes a crowd of nobody.
func New(o Options) *Crowd {
	return &Crowd{o: o, asking: make(chan struct{}, mostAsking), seats: map[*Seat]bool{}, standing: map[string]*posted{}}
}

// Seat is a stream of somebody who listens. [Crowd.Join] makes it.
type Seat struct {
	crowd *Crowd
	who   *identity.Principal
	queue []*posted
	told  map[string]bool // by id, of what stands
	more  chan struct{}   // has one in it if the queue may have something
}

// Join has somebody listen until [Seat.Leave].
func (c *Crowd) Join(who *identity.Principal) *Seat {
	s := &Seat{crowd: c, who: who, told: map[string]bool{}, more: make(chan struct{}, 1)}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seats[s] = true
	for _, p := range c.order {
		s.offer(p)
	}
	return s
}

// Leave ends that somebody listens.
func (s *Seat) Leave() {
	s.crowd.mu.Lock()
	defer s.crowd.mu.Unlock()
	delete(s.crowd.seats, s)
}

// tenantOf is a tenant by its name: no name is the default.
func tenantOf(name string) string { return cmp.Or(name, evaluation.DefaultTenant) }

// Listens reports whether somebody of a tenant listens.
func (c *Crowd) Listens(tenant string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for s := range c.seats {
		if tenantOf(s.who.Tenant) == tenantOf(tenant) {
			return true
		}
	}
	return false
}

// Post tells whoever listens, now and, if it has an ID, from now on until it is withdrawn. What has the ID of something that
// stands takes its place: who was told already is not told again.
func (c *Crowd) Post(n News) {
	p := &posted{News: n, whom: map[string]said{}}
	c.mu.Lock()
	defer c.mu.Unlock()
	if n.ID != "" {
		if c.standing[n.ID] == nil && len(c.standing) >= mostStanding {
			c.o.Dropped("too much to tell")
			return
		}
		c.withdraw(n.ID)
		c.standing[n.ID] = p
		c.order = append(c.order, p)
	}
	for s := range c.seats {
		s.offer(p)
	}
}

// Withdraw has nobody be told any more.
func (c *Crowd) Withdraw(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.withdraw(id)
	for s := range c.seats {
		delete(s.told, id)
	}
}

func (c *Crowd) withdraw(id string) {
	p := c.standing[id]
	if p == nil {
		return
	}
	p.over = true
	delete(c.standing, id)
	if len(c.order) > 2*len(c.standing)+16 {
		var left []*posted
		for _, p := range c.order {
			if !p.over {
				left = append(left, p)
			}
		}
		c.order = left
	}
}

// Tell tells one principal, on whatever streams they have.
func (c *Crowd) Tell(principal string, m rpc.Message) {
	p := &posted{whom: map[string]said{principal: {m, true}}}
	c.mu.Lock()
	defer c.mu.Unlock()
	for s := range c.seats {
		if s.who.Key == principal {
			p.Tenant = s.who.Tenant
			s.offer(p)
		}
	}
}

// offer puts news into the queue. The caller holds the crowd's lock.
func (s *Seat) offer(p *posted) {
	switch {
	case p.over || tenantOf(p.Tenant) != tenantOf(s.who.Tenant):
		return
	case len(s.queue) >= mostQueued:
		s.crowd.o.Dropped("listener too slow")
		return
	}
	s.queue = append(s.queue, p)
	select {
	case s.more <- struct{}{}:
	default:
	}
}

// Hear tells what there is to tell until ctx ends, or until tell fails.
func (s *Seat) Hear(ctx context.Context, tell func(rpc.Message) error) error {
	for {
		p := s.next()
		if p == nil {
			select {
			case <-s.more:
				continue
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		m, ok, err := s.crowd.say(ctx, p, s.who)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			s.crowd.o.Dropped("nobody knows whom it concerns")
			continue
		case !ok || !s.tells(p):
			continue
		}
		if err := tell(m); err != nil {
			return err
		}
	}
}

// next is what comes next, nil if there is nothing.
func (s *Seat) next() *posted {
	s.crowd.mu.Lock()
	defer s.crowd.mu.Unlock()
	for len(s.queue) > 0 {
		p := s.queue[0]
		s.queue[0] = nil
		s.queue = s.queue[1:]
		if !p.over && (p.ID == "" || !s.told[p.ID]) {
			return p
		}
	}
	s.queue = nil
	return nil
}

// tells reports whether news are to be told still, and notes that they are.
func (s *Seat) tells(p *posted) bool {
	s.crowd.mu.Lock()
	defer s.crowd.mu.Unlock()
	if p.ID == "" {
		return true
	}
	if p.over || s.told[p.ID] {
		return false
	}
	s.told[p.ID] = true
	return true
}

// say is what news are to somebody. It is found out once for each principal.
func (c *Crowd) say(ctx context.Context, p *posted, who *identity.Principal) (rpc.Message, bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if found, ok := p.whom[who.Key]; ok {
		return found.message, found.ok, nil
	}
	if p.Say == nil {
		return rpc.Message{}, false, nil
	}
	select {
	case c.asking <- struct{}{}:
	case <-ctx.Done():
		return rpc.Message{}, false, ctx.Err()
	}
	defer func() { <-c.asking }()
	m, ok, err := p.Say(ctx, who)
	if err == nil {
		p.whom[who.Key] = said{m, ok}
	}
	return m, ok, err
}
