package crowd

import (
	"context"
	"errors"
	"time"

	"policy-service/pdp/mcp/internal/rpc"
)

// mostAsking is how many questions there are at a time whom news of a tenant concern. Of one principal it is one.
const mostAsking = 4

// asksFor is how long a question may take.
const asksFor = 10 * time.Second

// errOver is why nothing is asked.
var errOver = errors.New("nobody is asked any longer")

// ask finds out what news are to whoever has the seat, nil if they are none of theirs. A question goes on if its stream ends: it
// has been put, and what is said is kept. So who opens stream after stream does not have it put each time.
func (s *Seat) ask(ctx context.Context, p *posted) (*rpc.Message, error) {
	if p.said != nil {
		return p.said, nil
	}
	c, of := s.crowd, s.crowd.about(s, p)
	if what, ok := c.known(of); ok {
		return what, nil
	}
	if err := s.member.asks.Take(ctx); err != nil {
		return nil, err
	}
	if what, ok := c.known(of); ok { // another stream has asked just now
		s.member.asks.Leave()
		return what, nil
	}
	select {
	case s.room.asking <- struct{}{}:
	case <-ctx.Done():
		s.member.asks.Leave()
		return nil, ctx.Err()
	}
	q := &question{seat: s, news: p, of: of, over: make(chan struct{}), err: errOver}
	if !c.o.Background(func() { q.put(context.WithoutCancel(ctx)) }) {
		q.end()
	}
	select {
	case <-q.over:
		return q.what, q.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// question is whether news concern somebody. It has the turn of its principal, and one of the places of its tenant.
type question struct {
	seat *Seat
	news *posted
	of   about

	over chan struct{} // closed when what follows is set
	what *rpc.Message
	err  error
}

// put puts it, and keeps the answer.
func (q *question) put(ctx context.Context) {
	defer q.end()
	c := q.seat.crowd
	ctx, cancel := context.WithTimeout(ctx, asksFor)
	defer cancel()
	defer context.AfterFunc(c.o.Context, cancel)()
	m, ok, err := q.news.Say(ctx, q.seat.who)
	if q.err = err; err != nil {
		return
	}
	if ok {
		q.what = &m
	}
	c.keep(q.of, q.what)
}

// end gives back what it has.
func (q *question) end() {
	s := q.seat
	<-s.room.asking
	s.member.asks.Leave()
	close(q.over)
	s.crowd.mu.Lock()
	defer s.crowd.mu.Unlock()
	s.crowd.forget(s)
}
