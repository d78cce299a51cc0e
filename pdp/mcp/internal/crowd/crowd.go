// Package crowd tells those who listen what there is to tell: to all of a tenant whom it concerns, or to one of them.
//
// Begin with [New] and [Crowd.Join], which gives a [Seat]; [Seat.Hear] tells what stands already, and then what comes.
// [Crowd.Post] has something told, and [Crowd.Withdraw] has it told to nobody more. Whom it concerns is said by [News.Say], which
// is asked for one stream of a principal at a time, and for few at a time: a crowd is no reason to overrun the PDP.
//
// What stands is kept once, however many listen: a seat has but how far it is, and a bit for each of what it was told. The
// package decides nothing, and knows no message but by what it is given.
package crowd

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"policy-service/pdp/mcp/internal/identity"
	"policy-service/pdp/mcp/internal/rpc"
	"policy-service/pdp/mcp/internal/turn"
)

// News are something to tell.
type News struct {
	// ID names what stands until it is withdrawn, and is told once to each who listens. "" is told to whoever listens now.
	ID string
	// Tenant is whose it is.
	Tenant string
	// Say is the message for somebody. It is not ok if it is none of theirs. With an error nobody knows, and it is asked again
	// until what stands is over: see [Later]. What it says is kept for a while, and holds for that very token.
	Say func(ctx context.Context, who *identity.Principal) (m rpc.Message, ok bool, err error)
}

// Options are what a [Crowd] is made with. All are needed.
type Options struct {
	// Dropped counts what somebody did not hear, and why.
	Dropped func(reason string)
	// Now is the time.
	Now func() time.Time
	// Background runs a question, which nobody may wait for any longer. It is not ok, and nothing runs, if all is over. All
	// questions end with Context.
	Background func(what func()) (ok bool)
	Context    context.Context
}

const (
	// mostStanding is how much stands in a tenant at a time, and mostQueued how much of what does not stand waits for one stream.
	mostStanding = 8192
	mostQueued   = 64
)

// Why somebody does not hear something.
const (
	TooMuch = "too much to tell"
	TooSlow = "listener too slow"
	Unknown = "nobody knows whom it concerns"
)

// Crowd is who listens.
type Crowd struct {
	o     Options
	first time.Duration // usually tryAgain

	mu      sync.Mutex // guards what follows, and what seats and rooms have
	last    uint64     // of the numbers of news
	rooms   map[string]*room
	members map[string]*member
	answers answers
}

// member is a principal who listens.
type member struct {
	asks  turn.Turn // is for who asks; one question has it
	seats map[*Seat]bool
}

// posted are news. Later ones have a higher number.
type posted struct {
	News
	number uint64
	place  int // in its room, if it stands
	over   bool
	// said is what it is to everybody, nil if they are to be asked about.
	said *rpc.Message
}

// New makes a crowd of nobody.
func New(o Options) *Crowd {
	return &Crowd{o: o, first: tryAgain, answers: answers{clock: o.Now, began: o.Now()}, rooms: map[string]*room{}, members: map[string]*member{}}
}

// Join has somebody listen until [Seat.Leave].
func (c *Crowd) Join(who *identity.Principal) *Seat {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.members[who.Key]
	if m == nil {
		m = &member{asks: turn.New(), seats: map[*Seat]bool{}}
		c.members[who.Key] = m
	}
	s := &Seat{crowd: c, room: c.room(who.Tenant), member: m, who: who, by: tokenOf(who), more: make(chan struct{}, 1)}
	m.seats[s], s.room.seats[s] = true, true
	return s
}

// forget forgets the principal of a seat that has left, if they listen no longer, and nothing is asked about them. The caller
// holds the lock.
func (c *Crowd) forget(s *Seat) {
	if m := s.member; len(m.seats) == 0 && len(m.asks) == 0 && c.members[s.who.Key] == m {
		delete(c.members, s.who.Key)
	}
}

// room is that of a tenant.
func (c *Crowd) room(tenant string) *room {
	r := c.rooms[tenant]
	if r == nil {
		r = &room{asking: make(chan struct{}, mostAsking), seats: map[*Seat]bool{}, standing: map[string]*posted{}}
		c.rooms[tenant] = r
	}
	return r
}

// Listens reports whether somebody of a tenant listens.
func (c *Crowd) Listens(tenant string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.room(tenant).seats) > 0
}

// Post tells whoever listens, now and, if it has an ID, from now on until it is withdrawn. What has the ID of something that
// stands takes its place: who was told already is not told again.
func (c *Crowd) Post(n News) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last++
	p, r := &posted{News: n, number: c.last}, c.room(n.Tenant)
	if n.ID != "" && !r.stand(p) {
		c.o.Dropped(TooMuch)
		return
	}
	for s := range r.seats {
		if n.ID == "" {
			s.queues(p)
		}
		s.wake()
	}
}

// Withdraw has nobody be told any more.
func (c *Crowd) Withdraw(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.rooms {
		r.withdraw(id)
	}
}

// Tell tells one principal, on whatever streams they have.
func (c *Crowd) Tell(principal string, m rpc.Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	of := c.members[principal]
	if of == nil {
		return
	}
	p := &posted{said: &m}
	for s := range of.seats {
		s.queues(p)
		s.wake()
	}
}

// room is what is told in a tenant, and who listens there.
type room struct {
	asking   chan struct{} // has those who ask: a tenant that takes long is in no other's way
	seats    map[*Seat]bool
	standing map[string]*posted
	order    []*posted // of what stands, the oldest first; some that are over among them
	places   int       // how many there ever were at a time
	free     []int     // those of them that nothing has
}

// stand has news stand. It is not ok, and they do not, if there are too many.
func (r *room) stand(p *posted) (ok bool) {
	before := r.standing[p.ID]
	switch {
	case before != nil:
		before.over = true
		p.place = before.place
	case len(r.standing) >= mostStanding:
		return false
	case len(r.free) > 0:
		p.place = r.free[len(r.free)-1]
		r.free = r.free[:len(r.free)-1]
	default:
		p.place = r.places
		r.places++
	}
	r.standing[p.ID] = p
	r.order = append(r.order, p)
	r.tidy()
	return true
}

func (r *room) withdraw(id string) {
	p := r.standing[id]
	if p == nil {
		return
	}
	p.over = true
	delete(r.standing, id)
	r.free = append(r.free, p.place)
	for s := range r.seats { // whoever has its place next was told to nobody
		s.told.clear(p.place)
	}
	r.tidy()
}

// tidy forgets what is over if it is most of what there is.
func (r *room) tidy() {
	if len(r.order) > 2*len(r.standing)+16 {
		r.order = slices.Clone(slices.DeleteFunc(r.order, func(p *posted) bool { return p.over }))
	}
}

// after is what was posted after a number.
func (r *room) after(number uint64) []*posted {
	n, _ := slices.BinarySearchFunc(r.order, number+1, func(p *posted, number uint64) int { return cmp.Compare(p.number, number) })
	return r.order[n:]
}
