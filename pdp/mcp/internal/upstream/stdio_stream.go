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
	asks         bool // the server may ask something meanwhile
	unwatch      func() bool
	wake         chan struct{}
	ended        chan struct{} // closed if nothing more is put into the queue

	// The lock of the session guards the rest.
	queue  []rpc.Message
	size   int
	asking int // requests of the server that went here and wait for an answer
	err    *Error
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

// over reports whether nothing more is put into the queue.
func (c *childStream) over() bool {
	select {
	case <-c.ended:
		return true
	default:
		return false
	}
}

// put hands a message on, unless too many wait. The session is locked.
func (c *childStream) put(m rpc.Message) bool {
	size := len(m.Method) + len(m.Params)
	if !m.IsResponse() {
		if len(c.queue) >= mostQueued || c.size+size > c.s.o.MaxResult {
			return false
		}
		c.size += size
	}
	c.queue = append(c.queue, m)
	signal(c.wake)
	return true
}

// take is the next message, and whether there is one, and how long to wait for one: 0 is without a bound.
func (c *childStream) take() (m rpc.Message, ok bool, wait time.Duration) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if len(c.queue) > 0 {
		m = c.queue[0]
		c.queue = c.queue[1:]
		if !m.IsResponse() {
			c.size -= len(m.Method) + len(m.Params)
		}
		return m, true, 0
	}
	if !c.subscription && c.asking == 0 && !c.id.IsZero() {
		wait = c.s.o.Timeout
	}
	return m, false, wait
}

// Next waits for a message. A silence that is too long gives the request up, unless the server waits for an answer itself.
func (c *childStream) Next() (rpc.Message, error) {
	for {
		over := c.over()
		m, ok, wait := c.take()
		switch {
		case ok:
			return m, nil
		case over:
			if err := c.why(); err != nil {
				return m, err
			}
			return m, io.EOF
		}
		c.await(wait)
	}
}

// await waits until there may be a message. If there is none for so long, it gives the request up.
func (c *childStream) await(silence time.Duration) {
	var silent <-chan time.Time
	if silence > 0 {
		timer := time.NewTimer(silence)
		defer timer.Stop()
		silent = timer.C
	}
	select {
	case <-c.ended:
	case <-c.wake:
	case <-silent:
		c.s.giveUp(c, &Error{Detail: "the server is silent for longer than its timeout"})
	}
}

func (c *childStream) why() error {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if c.err == nil {
		return nil
	}
	return c.err
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
	if c.over() {
		return
	}
	if c.line != nil {
		if why.NotSent = s.out.withdraw(c.line); !why.NotSent {
			s.cancel(c.id)
		}
	}
	s.finish(c, why)
}

// cancel notifies the server that no caller waits for a request any more. The session is locked.
func (s *childSession) cancel(id rpc.ID) {
	params := append(append([]byte(`{"requestId":`), id.Text()...), '}')
	if !s.out.putOwn(rpc.Message{Method: "notifications/cancelled", Params: params}) {
		s.o.Dropped(DropUnread) // a server that does not read gets no notice
	}
}

// finish ends a stream; without an error its response is in the queue. The session is locked.
func (s *childSession) finish(c *childStream, why *Error) {
	c.err = why
	c.unwatch()
	s.listeners = slices.DeleteFunc(s.listeners, func(other *childStream) bool { return other == c })
	delete(s.calls, c.id)
	if c.token != "" {
		delete(s.tokens, c.token)
	}
	close(c.ended)
}

// errNoAnswer is of a question of the greeting that has no answer in time. It may still get one.
var errNoAnswer = errors.New("no answer in time")

// response waits for the response alone.
func (c *childStream) response(within time.Duration) (rpc.Message, error) {
	timer := time.NewTimer(within)
	defer timer.Stop()
	for {
		over := c.over()
		m, ok, _ := c.take()
		switch {
		case ok && m.IsResponse():
			return m, nil
		case ok:
			continue
		case over:
			return m, c.why()
		}
		select {
		case <-c.ended:
		case <-c.wake:
		case <-timer.C:
			return m, errNoAnswer
		}
	}
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
