package upstream

import (
	"context"

	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/rpc"
)

// Listen is what the server says beside the answers to requests. One stream at a time listens. What the server says as soon
// as it has been greeted waits for the first.
func (s *childSession) Listen(ctx context.Context) (Stream, error) {
	if s.era == era.Modern {
		return Nothing, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return nil, &Error{NotSent: true, Detail: "the stream was given up", Err: ctx.Err()}
	case s.over != nil:
		return nil, &Error{NotSent: true, Gone: true, Detail: s.over.Detail, Err: s.over.Err}
	case s.early != nil:
		s.early.Stop()
		s.early = nil
	case s.listener != nil:
		return nil, &Error{NotSent: true, Detail: "somebody listens to this session already"}
	default:
		s.listener = s.newStream()
	}
	s.listener.watch(ctx)
	return s.listener, nil
}

// nobodyListens drops what has waited for somebody who listens.
func (s *childSession) nobodyListens() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.early == nil || s.over != nil {
		return
	}
	s.early = nil
	c := s.listener
	s.finish(c, nil)
	s.refuseAll(c, rpc.MethodNotFound)
	for _, m := range c.queue {
		if !m.IsRequest() {
			s.o.Dropped(DropUnheard)
		}
	}
}
