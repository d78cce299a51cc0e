package front

import (
	"net/http"
	"time"

	"policy-service/pdp/internal/mcp/internal/flow"
	"policy-service/pdp/internal/mcp/internal/identity"
	"policy-service/pdp/internal/mcp/internal/link"
	"policy-service/pdp/internal/mcp/internal/reply"
	"policy-service/pdp/internal/rpc"
)

func (g *Front) get(w http.ResponseWriter, r *http.Request) {
	if !acceptOf(r.Header).stream {
		g.refuse(w, http.StatusNotAcceptable, rpc.ID{}, rpc.InvalidRequest, "Accept must name text/event-stream")
		return
	}
	who, ok := g.authenticate(w, r)
	if !ok {
		return
	}
	s, ok := g.sessionOf(w, r, who)
	if !ok {
		return
	}
	if s.foreign { // its subscriptions are at the other gateway
		g.noSession(w)
		return
	}
	if !s.listen() {
		g.refuse(w, http.StatusConflict, rpc.ID{}, rpc.InvalidRequest, "this session has a stream already")
		return
	}
	defer func() { s.leave(g.o.Now()) }()
	ctx, leave, ok := g.doors.Enter(r.Context())
	if !ok {
		g.refuse(w, http.StatusServiceUnavailable, rpc.ID{}, rpc.InternalError, link.ErrClosed.Detail)
		return
	}
	defer leave()
	ctx, cancel := who.Context(ctx)
	defer cancel()
	ctx, done := g.doors.Until(ctx)
	defer done()
	back := reply.Over(w, false, true)
	defer back.Leave() // the server may be sending a request just now
	release, limit, after := g.flow.Admit(who, "", false)
	if limit != "" {
		g.tooMany(w, after)
		return
	}
	release() // the opening counts as one request; the stream then lasts
	end, ok := g.o.Rates.Hold(who.Account(), flow.Streams)
	if !ok {
		g.tooMany(w, time.Second)
		return
	}
	defer end()
	if refused := g.flow.Stream(ctx, s.call(who, r.Header, back)); refused != nil {
		g.end(w, max(refused.Status, http.StatusForbidden), refused.Message)
	}
}

// call is the opening of a stream. The PDP permits it if it permits the principal to begin a session.
func (s *session) call(who *identity.Principal, header http.Header, back reply.Reply) flow.Call {
	params := rpc.Object{}.With("protocolVersion", rpc.String(s.client.Version))
	request := rpc.Message{Method: "initialize", Params: params.Value()}
	return flow.Call{Who: who, Client: s.client, Reach: s.reach, Session: s.Conversation, Request: request, Params: params, Header: header, Reply: back}
}

// listen notes that the session has a stream. It is not ok if the session has one already.
func (s *session) listen() (ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ok = !s.listening
	s.listening, s.left = true, false
	return ok
}

func (s *session) leave(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listening, s.left, s.used = false, true, now
}
