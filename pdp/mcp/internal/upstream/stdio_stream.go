package upstream

import (
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/rpc"
)

// childStream is the answer to one request, or, without an id, the messages beside the answers.
type childStream struct {
	s    *childSession
	id   rpc.ID
	line *outLine
	// token is that of its progress, and subscription says that it lasts: it is one of subscriptions/listen.
	token        string
	subscription bool
	asks         bool          // the server may ask something meanwhile
	patience     time.Duration // bounds a silence of the server; 0 is no bound
	unwatch      func() bool
	wake         chan struct{}
	ended        chan struct{} // closed if nothing more is put into the queue

	// The lock of the session guards the rest.
	queue  []rpc.Message
	size   int
	asking int   // requests of the server that went here and wait for an answer
	err    error // why it ended: [io.EOF] without a mistake
}

const mostQueued = 128

func (s *childSession) newStream() *childStream {
	return &childStream{
		s:       s,
		wake:    make(chan struct{}, 1),
		ended:   make(chan struct{}),
		unwatch: func() bool { return true },
	}
}

// watch gives the stream up if ctx ends.
func (c *childStream) watch(ctx context.Context) {
	c.unwatch = context.AfterFunc(ctx, func() {
		c.s.giveUp(c, &Error{Detail: "the request was given up", Err: ctx.Err()})
	})
}

// signal has the reader of the stream look again.
func (c *childStream) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// weight is how much of the queue a message takes. There is always room for a response.
func weight(m rpc.Message) int { return len(m.Method) + len(m.Params) }

// put hands a message on, unless too many wait. The session is locked.
func (c *childStream) put(m rpc.Message) bool {
	if !m.IsResponse() && (len(c.queue) >= mostQueued || c.size+weight(m) > c.s.o.MaxResult) {
		return false
	}
	c.size += weight(m)
	c.queue = append(c.queue, m)
	c.signal()
	return true
}

// errEmpty is of a queue into which a message may come.
var errEmpty = errors.New("no message yet")

// take is the next message, or the error why there is none. After errEmpty a caller waits for so long; 0 is without a bound.
func (c *childStream) take() (m rpc.Message, wait time.Duration, err error) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	switch {
	case len(c.queue) > 0:
		m = c.queue[0]
		c.queue = c.queue[1:]
		c.size -= weight(m)
		return m, 0, nil
	case c.err != nil:
		return m, 0, c.err
	case c.asking > 0:
		return m, 0, errEmpty
	}
	return m, c.patience, errEmpty
}

// Next waits for a message. A silence that is too long is an error, unless the server waits for an answer itself.
func (c *childStream) Next() (rpc.Message, error) {
	for {
		m, wait, err := c.take()
		if err != errEmpty {
			return m, err
		}
		var silent <-chan time.Time
		if wait > 0 {
			silent = time.After(wait)
		}
		select {
		case <-c.ended:
		case <-c.wake:
		case <-silent:
			return m, &Error{Detail: "the server is silent for longer than its timeout", Err: errSlow}
		}
	}
}

// Close gives up the request if no response has come. Requests of the server without an answer are refused.
func (c *childStream) Close() {
	c.s.giveUp(c, &Error{Detail: "the request was given up"})
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.s.refuseAll(c, rpc.InternalError)
}

// refuseAll refuses the requests of the server that went to a stream and have no answer. The session is locked.
func (s *childSession) refuseAll(c *childStream, code int) {
	for id, to := range s.asked {
		if to == c {
			s.refuse(id, code)
			s.answered(id)
		}
	}
}

// giveUp ends a stream before its response, and notifies the server if it may have got the request.
func (s *childSession) giveUp(c *childStream, why *Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.err != nil {
		return
	}
	if c.line != nil {
		if why.NotSent = s.out.withdraw(c.line); !why.NotSent {
			s.say(cancelled(c.id))
		}
	}
	s.finish(c, why)
}

// finish ends a stream. With [io.EOF] its response is in the queue. The session is locked.
func (s *childSession) finish(c *childStream, why error) {
	c.err = why
	c.unwatch()
	s.listeners = slices.DeleteFunc(s.listeners, func(other *childStream) bool { return other == c })
	delete(s.calls, c.id)
	close(c.ended)
}

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
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	var c *childStream
	switch {
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
	s.finish(c, io.EOF)
	s.refuseAll(c, rpc.MethodNotFound)
	for _, m := range c.queue {
		if !m.IsRequest() {
			s.o.Dropped(DropUnheard)
		}
	}
}
