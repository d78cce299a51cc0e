package front

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"time"

	"policy-service/pdp/internal/mcp/internal/answer"
	"policy-service/pdp/internal/mcp/internal/era"
	"policy-service/pdp/internal/mcp/internal/flow"
	"policy-service/pdp/internal/mcp/internal/identity"
	"policy-service/pdp/internal/mcp/internal/link"
	"policy-service/pdp/internal/mcp/internal/reply"
	"policy-service/pdp/internal/rpc"
	"policy-service/pdp/mcp/wire"
)

// The front of the legacy era: a handshake, then requests, notifications and answers that name a session.

func (g *Front) postLegacy(w http.ResponseWriter, r *http.Request, in *incoming) (context.Context, *flow.Visit) {
	m := &in.message
	if v := in.header.Get(era.VersionHeader); v != "" && !slices.Contains(era.LegacyVersions, v) {
		g.refuse(w, http.StatusBadRequest, m.ID, rpc.InvalidRequest, "this revision of the protocol is not supported")
		return nil, nil
	}
	if m.Method == "initialize" {
		return g.beginSession(w, r, in)
	}
	s, ok := g.sessionOf(w, r, in.who)
	if !ok {
		return nil, nil
	}
	switch {
	case m.IsResponse():
		_, _ = g.flow.PersonMay(in.who)
		g.takeAnswer(w, r, s, in)
	case m.Method == rpc.Respond && m.IsNotification():
		ctx, cancel := in.who.Context(r.Context())
		v := s.visit(g, w, in, cancel)
		v.Reply = silentReply{w}
		return ctx, v
	case m.Method == wire.MethodAccess:
		g.refuseAccess(w, in.who)
	case m.IsNotification():
		release, limit, after := g.flow.Admit(in.who, "", m.Method == "notifications/cancelled") // it frees places for others
		if limit != "" {
			g.tooMany(w, after)
			break
		}
		defer release()
		g.takeNotification(r.Context(), s, in)
		w.WriteHeader(http.StatusAccepted)
	case s.foreign && slices.Contains(ofStream, m.Method):
		g.noSession(w)
	default:
		ctx, cancel := in.who.Context(r.Context())
		if !s.flights.Begin(m.ID, cancel) {
			cancel()
			g.refuse(w, http.StatusBadRequest, m.ID, rpc.InvalidRequest, "a request with this id is under way")
			break
		}
		return ctx, s.visit(g, w, in, cancel, func() {
			s.touch(g.o.Now())
			s.flights.End(m.ID)
		})
	}
	return nil, nil
}

func (s *session) visit(g *Front, w http.ResponseWriter, in *incoming, ends ...func()) *flow.Visit {
	back := reply.Over(w, in.streamFirst, true)
	back.Begun = func() {
		s.begun.Store(true)
		if g.sessions.add(s) == nil {
			go s.close()
		}
	}
	return g.flow.Visit(flow.Call{Who: in.who, Client: s.client, Reach: s.reach, Session: s.Conversation, Request: in.message, Params: in.params, Header: in.header, Reply: back}, ends...)
}

func (g *Front) beginSession(w http.ResponseWriter, r *http.Request, in *incoming) (context.Context, *flow.Visit) {
	if in.header.Get(reply.SessionHeader) != "" {
		g.refuse(w, http.StatusBadRequest, in.message.ID, rpc.InvalidRequest, "a session begins without Mcp-Session-Id")
		return nil, nil
	}
	if !g.sessions.hasRoom(in.who) {
		g.tooMany(w, time.Second)
		return nil, nil
	}
	s, err := g.sessions.make(in.who, legacyClient(in.params))
	if err != nil {
		g.refuse(w, http.StatusBadRequest, in.message.ID, rpc.InvalidParams, err.Error())
		return nil, nil
	}
	ctx, cancel := in.who.Context(r.Context())
	return ctx, s.visit(g, w, in, cancel, func() { g.closeUnbegun(s) })
}

// closeUnbegun closes a session that has not begun, with its sessions at servers: the client has no id to end it by.
func (g *Front) closeUnbegun(s *session) {
	if !s.begun.Load() {
		g.doors.Background(s.close)
	}
}

// legacyClient is the client that the params of a handshake describe. If the gateway does not speak the revision that the
// client asks for, it offers another one, which the client may accept or not.
func legacyClient(params rpc.Object) link.Client {
	c := link.Client{Era: era.Legacy, Version: params.GetString("protocolVersion"), Info: params.Get("clientInfo"), Capabilities: params.Get("capabilities")}
	if !slices.Contains(era.LegacyVersions, c.Version) {
		c.Version = era.LegacyVersions[0]
	}
	return c
}

// sessionOf returns the session that a request names, or refuses the request.
func (g *Front) sessionOf(w http.ResponseWriter, r *http.Request, who *identity.Principal) (*session, bool) {
	id := r.Header.Get(reply.SessionHeader)
	if id == "" {
		g.refuse(w, http.StatusBadRequest, rpc.ID{}, rpc.InvalidRequest, "Mcp-Session-Id is missing; begin with initialize")
		return nil, false
	}
	s := g.sessions.find(id, who)
	if s == nil {
		g.noSession(w)
		return nil, false
	}
	return s, true
}

// noSession refuses a request of a session that is not here. Its client then begins another one. With the id of the request, some
// clients would take it for an answer of the server.
func (g *Front) noSession(w http.ResponseWriter) {
	g.refuse(w, http.StatusNotFound, rpc.ID{}, rpc.InvalidRequest, "there is no such session; begin with initialize")
}

// ofStream are the requests that choose the messages on the stream of a session. A foreign session has no stream here.
var ofStream = []string{"logging/setLevel", "resources/subscribe", "resources/unsubscribe"}

// takeNotification takes a notification of a client. Only notifications that a policy decides about are forwarded, except that
// roots have changed, which goes to servers by its name alone. If a client cancels a request, the gateway itself cancels it at
// the server.
func (g *Front) takeNotification(ctx context.Context, s *session, in *incoming) {
	switch in.message.Method {
	case "notifications/initialized": // the gateway has sent its own to the server
	case "notifications/cancelled":
		s.flights.Cancel(in.params.Get("requestId"))
	case "notifications/progress":
		g.o.Meters.Drop("progress of a client")
	default:
		g.flow.Notified(ctx, flow.Call{Who: in.who, Client: s.client, Reach: s.reach, Session: s.Conversation, Request: in.message, Params: in.params})
	}
}

func (g *Front) delete(w http.ResponseWriter, r *http.Request) {
	who, ok := g.authenticate(w, r)
	if !ok {
		return
	}
	s, ok := g.sessionOf(w, r, who)
	if !ok {
		return
	}
	_, _ = g.flow.PersonMay(who)
	g.sessions.end(s)
	w.WriteHeader(http.StatusNoContent)
}

// takeAnswer takes an answer of a client: to the gateway, if the gateway has asked a person, and otherwise to a server.
func (g *Front) takeAnswer(w http.ResponseWriter, r *http.Request, s *session, in *incoming) {
	q, ours := g.people.Question(s.Conversation, in.message.ID)
	if !ours {
		switch {
		case s.Deliver(in.message):
			w.WriteHeader(http.StatusAccepted)
		case s.foreign: // the call that waits for it is at the other gateway
			g.noSession(w)
		default:
			g.refuse(w, http.StatusBadRequest, rpc.ID{}, rpc.InvalidRequest, "nothing waits for this answer")
		}
		return
	}
	switch status, after := g.people.SubmitAnswer(r.Context(), s.Conversation, q, in.who, in.message); status {
	case http.StatusTooManyRequests:
		g.tooMany(w, after)
	case http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", strconv.FormatInt(answer.Seconds(after), 10))
		g.refuse(w, status, rpc.ID{}, rpc.InternalError, "the PDP did not take the answer; send it again")
	default:
		w.WriteHeader(status)
	}
}
