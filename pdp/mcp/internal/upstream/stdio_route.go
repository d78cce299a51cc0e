package upstream

import (
	"cmp"
	"io"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/rpc"
)

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
	to := cmp.Or(s.onlyCall(true), s.onlyCall(false))
	if to == nil && len(s.listeners) > 0 {
		to = s.listeners[0]
	}
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
	meta := params.GetObject("_meta")
	to, dropped := s.listeners, DropUnheard
	only := func(c *childStream) {
		if to, dropped = nil, DropForeign; c != nil {
			to = []*childStream{c}
		}
	}
	switch subscription := meta.Get(era.MetaSubscription); {
	case m.Method == "notifications/progress":
		only(s.awaiting(tokenKey(params.Get("progressToken"))))
	case subscription != nil:
		only(s.subscribed(subscription))
	case m.Method == "notifications/cancelled":
		only(s.takenBack(params.Get("requestId")))
	case strings.HasSuffix(m.Method, "/list_changed"), m.Method == "notifications/resources/updated":
	default:
		if c := s.onlyCall(false); c != nil {
			only(c)
		}
	}
	for n, c := range to {
		if n == 0 {
			dropped = ""
		}
		if !c.put(m) {
			dropped = DropOverflow
		}
	}
	return dropped
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

// subscribed is the stream of a subscription, which has the id of its request. Some servers make a string of it.
func (s *childSession) subscribed(id jsontext.Value) *childStream {
	for _, c := range s.calls {
		if c.subscription && strings.Trim(string(id), `"`) == string(c.id.Text()) {
			return c
		}
	}
	return nil
}

// awaiting is the call that may have progress with a token, nil if there is none.
func (s *childSession) awaiting(token string) *childStream {
	for _, c := range s.calls {
		if c.token != "" && c.token == token {
			return c
		}
	}
	return nil
}

// tokenKey is equal for equal tokens of progress, however they are written. No token has the key "".
func tokenKey(token jsontext.Value) string {
	if token.Kind() != '"' {
		return string(token)
	}
	text, _ := jsontext.AppendUnquote([]byte{'"'}, token) // it is valid, as all that it was read from
	return string(text)
}
