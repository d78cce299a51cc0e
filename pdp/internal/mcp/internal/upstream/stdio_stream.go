package upstream

import (
	"cmp"
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/internal/mcp/internal/era"
	"policy-service/pdp/internal/rpc"
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

func (c *childStream) watch(ctx context.Context) {
	c.unwatch = context.AfterFunc(ctx, func() {
		c.s.giveUp(c, &Error{Detail: "the request was given up", Err: ctx.Err()})
	})
}

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
			s.client.extra()
			s.say(cancelled(c.id))
		}
	}
	s.finish(c, why)
}

// finish ends a stream. With [io.EOF] its response is in the queue. The session is locked.
func (s *childSession) finish(c *childStream, why error) {
	c.err = why
	c.unwatch()
	if s.listener == c {
		s.listener = nil
	}
	delete(s.calls, c.id)
	close(c.ended)
}

// Listen is the stream of messages beside the answers to requests, one at a time. Messages right after the greeting wait
// for the first.
func (s *childSession) Listen(ctx context.Context) (Stream, error) {
	if s.era == era.Modern {
		return Nothing, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	switch {
	case s.early != nil:
		s.early.Stop()
		s.early = nil
	case s.listener != nil:
		return nil, &Error{NotSent: true, Detail: "another listens to this session already"}
	default:
		s.listener = s.newStream()
	}
	s.listener.watch(ctx)
	return s.listener, nil
}

// dropUnheard drops messages that have waited for a listener.
func (s *childSession) dropUnheard() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.early == nil || s.over != nil {
		return
	}
	s.early = nil
	c := s.listener
	s.finish(c, io.EOF)
	s.refuseAll(c, rpc.MethodNotFound)
	for _, m := range c.queue {
		if !m.IsRequest() {
			s.o.Dropped(DropUnheard)
		}
	}
}

// route hands a message to whom it is for. It returns why it is dropped, "" if it is not. The session is locked.
func (s *childSession) route(m rpc.Message) (dropped string) {
	switch {
	case m.IsResponse():
		c := s.calls[m.ID]
		if c == nil {
			return DropForeign
		}
		m.ID = rpc.ID{}
		c.put(m)
		s.finish(c, io.EOF)
		return ""
	case m.IsRequest():
		return s.routeRequest(m)
	}
	return s.routeNotification(m)
}

func (s *childSession) routeRequest(m rpc.Message) (dropped string) {
	to := cmp.Or(s.onlyCall(true), s.onlyCall(false), s.listener)
	switch {
	case s.era == era.Modern:
		return DropRequest
	case m.Method == "ping":
		s.say(rpc.Answer(m.ID, jsontext.Value("{}")))
		return ""
	case s.asked[m.ID] != nil:
		return DropForeign
	case to == nil || s.server == nil:
		s.refuse(m.ID, rpc.MethodNotFound)
		return DropUnheard
	case len(s.asked) >= mostAsked || !to.put(m):
		s.refuse(m.ID, rpc.InternalError)
		return DropOverflow
	}
	s.asked[m.ID] = to
	to.asking++
	return ""
}

// refuse answers a request of the server with an error. The session is locked.
func (s *childSession) refuse(id rpc.ID, code int) {
	s.say(rpc.Failure(id, rpc.Error{Code: code, Message: "nobody answers this request"}))
}

func (s *childSession) routeNotification(m rpc.Message) (dropped string) {
	params, _ := m.ParamsObject() // without any it is empty
	subscription := params.GetObject("_meta").Get(era.MetaSubscription)
	to, dropped := s.listener, DropUnheard
	switch {
	case m.Method == "notifications/progress":
		to, dropped = s.awaiting(tokenKey(params.Get("progressToken"))), DropForeign
	case subscription != nil:
		to, dropped = s.subscribed(subscription), DropForeign
	case m.Method == "notifications/cancelled":
		to, dropped = s.takenBack(params.Get("requestId")), DropForeign
	case strings.HasSuffix(m.Method, "/list_changed"), m.Method == "notifications/resources/updated":
	default:
		to = cmp.Or(s.onlyCall(false), to)
	}
	switch {
	case to == nil:
		return dropped
	case !to.put(m):
		return DropOverflow
	}
	return ""
}

// takenBack is the stream that a request of the server went to, which waits no longer for its answer.
func (s *childSession) takenBack(id jsontext.Value) *childStream {
	for asked, to := range s.asked {
		if string(asked.Text()) == string(id) {
			s.answered(asked)
			return to
		}
	}
	return nil
}

// onlyCall is the one call that waits, of those for which the server may ask or of all; nil if there are none or several.
// The session is locked.
func (s *childSession) onlyCall(asks bool) (only *childStream) {
	for _, c := range s.calls {
		switch {
		case c.subscription || asks && !c.asks:
		case only != nil:
			return nil
		default:
			only = c
		}
	}
	return only
}

func (s *childSession) call(is func(*childStream) bool) *childStream {
	for _, c := range s.calls {
		if is(c) {
			return c
		}
	}
	return nil
}

// subscribed is the stream of a subscription, which has the id of its request. Some servers make a string of it.
func (s *childSession) subscribed(id jsontext.Value) *childStream {
	text := strings.Trim(string(id), `"`)
	return s.call(func(c *childStream) bool { return c.subscription && string(c.id.Text()) == text })
}

// awaiting is the call that may have progress with a token, nil if there is none.
func (s *childSession) awaiting(token string) *childStream {
	return s.call(func(c *childStream) bool { return c.token != "" && c.token == token })
}

// tokenKey is equal for equal tokens of progress, however they are written. No token has the key "".
func tokenKey(token jsontext.Value) string {
	if token.Kind() != '"' {
		return string(token)
	}
	text, _ := jsontext.AppendUnquote([]byte{'"'}, token) // it is valid, as all that it was read from
	return string(text)
}
