package upstream

import (
	"context"

	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/rpc"
)

// mostListeners bounds how many listen to one session.
const mostListeners = 16

// Listen is the stream of messages beside the answers to requests. Each listener gets all of them; the first alone gets the
// requests of the server. Messages right after the greeting wait for the first listener.
func (s *childSession) Listen(ctx context.Context) (Stream, error) {
	if s.era == era.Modern {
		return Nothing, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var c *childStream
	switch {
	case ctx.Err() != nil:
		return nil, &Error{NotSent: true, Detail: "the stream was given up", Err: ctx.Err()}
	case s.over != nil:
		return nil, &Error{NotSent: true, Gone: true, Detail: s.over.Detail, Err: s.over.Err}
	case s.early != nil:
		s.early.Stop()
		s.early = nil
		c = s.listeners[0]
	case len(s.listeners) >= mostListeners:
		return nil, &Error{NotSent: true, Detail: "too many listen to this session already"}
	default:
		c = s.newStream()
		s.listeners = append(s.listeners, c)
	}
	c.watch(ctx)
	return c, nil
}

// dropUnheard drops messages that have waited for a listener.
func (s *childSession) dropUnheard() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.early == nil || s.over != nil {
		return
	}
	s.early = nil
	c := s.listeners[0]
	s.finish(c, nil)
	s.refuseAll(c, rpc.MethodNotFound)
	for _, m := range c.queue {
		if !m.IsRequest() {
			s.o.Dropped(DropUnheard)
		}
	}
}
