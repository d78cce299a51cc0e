package upstream

import (
	"bufio"
	"bytes"
	"errors"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/rpc"
)

// read reads what the server writes until it ends, and says why.
func (s *childSession) read() *Error {
	in := bufio.NewReaderSize(s.p.out, 64<<10)
	for {
		line, err := nextLine(in, s.o.MaxResult)
		switch {
		case errors.Is(err, errLongLine):
			s.drop("too_large", &Error{Detail: "a message of the server is larger than max_result"})
			continue
		case errors.Is(err, errEndless):
			return &Error{Gone: true, Detail: "a message of the server does not end"}
		case err != nil:
			return s.ended("the server closed its output")
		case len(bytes.TrimSpace(line)) == 0:
			continue
		}
		m, fault := rpc.Parse(line, rpc.DefaultLimits())
		if fault != nil {
			s.unreadable(line, fault)
			continue
		}
		s.mu.Lock()
		reason := s.route(m)
		s.mu.Unlock()
		if reason != "" {
			s.o.Dropped(reason)
		}
	}
}

// drop counts what cannot be read. It may have been the answer to any call, so none of them waits for it any more.
func (s *childSession) drop(reason string, why *Error) {
	s.o.Dropped(reason)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.calls {
		if !c.subscription {
			s.cancel(c.id)
			s.finish(c, why)
		}
	}
}

// unreadable drops a line that is no message. A program may write what is none; what looks like the answer to the only
// call, or is the one that has no id, ends that call.
func (s *childSession) unreadable(line []byte, fault *rpc.Fault) {
	s.mu.Lock()
	c := s.calls[fault.ID]
	if c == nil && fault.ID.IsZero() && bytes.Contains(line, []byte(`"jsonrpc"`)) {
		c = s.onlyCall()
	}
	if c != nil {
		why := &Error{Detail: "the server's answer is not one message without ambiguities"}
		if o, err := rpc.ParseObject(line); err == nil && (o.Get("id") == nil || o.Get("id").Kind() == 'n') {
			why.Answer = o.Get("error")
		}
		s.finish(c, why)
	}
	s.mu.Unlock()
	s.o.Dropped("unreadable")
}

// route hands a message to whom it is for. It returns why it is dropped, "" if it is not. The session is locked.
func (s *childSession) route(m rpc.Message) (dropped string) {
	switch {
	case m.IsResponse():
		c := s.calls[m.ID]
		if c == nil {
			return "unknown_id"
		}
		m.ID = rpc.ID{}
		c.put(m)
		s.finish(c, nil)
		return ""
	case m.IsRequest():
		return s.routeRequest(m)
	}
	return s.routeNotification(m)
}

func (s *childSession) routeRequest(m rpc.Message) (dropped string) {
	to := s.onlyCall()
	if to == nil {
		to = s.listener
	}
	switch {
	case s.era == era.Modern:
		return "request"
	case m.Method == "ping":
		if !s.out.putOwn(rpc.Answer(m.ID, jsontext.Value("{}"))) {
			return "answer"
		}
		return ""
	case s.asked[m.ID] != nil:
		return "request"
	case to == nil || !s.greeted:
		s.refuse(m.ID, rpc.MethodNotFound)
		return "request"
	case len(s.asked) >= mostAsked || !to.put(m):
		s.refuse(m.ID, rpc.InternalError)
		return "overflow"
	}
	s.asked[m.ID] = to
	to.asking++
	return ""
}

// refuse answers a request of the server with an error. The session is locked.
func (s *childSession) refuse(id rpc.ID, code int) {
	if !s.out.putOwn(rpc.Failure(id, rpc.Error{Code: code, Message: "nobody answers this request"})) {
		s.o.Dropped("answer")
	}
}

func (s *childSession) routeNotification(m rpc.Message) (dropped string) {
	var to *childStream
	params, _ := rpc.ParseObject(m.Params) // without any it is empty
	meta, _ := rpc.ParseObject(params.Get("_meta"))
	subscription := meta.Get(era.MetaSubscription)
	switch {
	case m.Method == "notifications/progress":
		to, dropped = s.tokens[tokenKey(params.Get("progressToken"))], "foreign_progress"
	case subscription != nil:
		to, dropped = s.subscribed(subscription), "foreign_subscription"
	case m.Method == "notifications/cancelled":
		id := params.Get("requestId")
		for asked, stream := range s.asked {
			if string(asked.Text()) == string(id) {
				to = stream
				s.answered(asked)
				break
			}
		}
		dropped = "foreign_cancel"
	case strings.HasSuffix(m.Method, "/list_changed"), m.Method == "notifications/resources/updated":
		to, dropped = s.listener, "nobody_listens"
	default:
		if to = s.onlyCall(); to == nil {
			to = s.listener
		}
		dropped = "nobody_listens"
	}
	switch {
	case to == nil:
		return dropped
	case !to.put(m):
		return "overflow"
	}
	return ""
}

// onlyCall is the one call that waits, nil if there are none or several. The session is locked.
func (s *childSession) onlyCall() (only *childStream) {
	for _, c := range s.calls {
		switch {
		case c.subscription:
		case only != nil:
			return nil
		default:
			only = c
		}
	}
	return only
}

// subscribed is the stream of a subscription, which has the id of its request. Some servers make a string of it.
func (s *childSession) subscribed(id jsontext.Value) *childStream {
	for _, c := range s.calls {
		if c.subscription && strings.Trim(string(id), `"`) == string(c.id.Text()) {
			return c
		}
	}
	return nil
}

// progressToken is the key of the token that a request has for its progress, "" if it has none.
func progressToken(params jsontext.Value) string {
	o, _ := rpc.ParseObject(params)
	meta, _ := rpc.ParseObject(o.Get("_meta"))
	return tokenKey(meta.Get("progressToken"))
}

// tokenKey is equal for equal tokens, however they are written. No token has the key "".
func tokenKey(token jsontext.Value) string {
	if token.Kind() != '"' {
		return string(token)
	}
	text, _ := jsontext.AppendUnquote([]byte{'"'}, token) // it is valid, as all that it was read from
	return string(text)
}
