package gate

import (
	"context"
	"net/http"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/rpc"
)

// The front of the legacy era: a handshake, then requests, notifications and answers that name a session.

func (g *Gateway) postLegacy(w http.ResponseWriter, r *http.Request, in incoming) {
	m := in.message
	if v := in.header.Get(versionHeader); v != "" && !slices.Contains(era.LegacyVersions, v) {
		g.refuse(w, http.StatusBadRequest, m.ID, rpc.InvalidRequest, "this revision of the protocol is not supported")
		return
	}
	if m.Method == "initialize" {
		g.begin(w, r, in)
		return
	}
	s, ok := g.sessionOf(w, r, in.who)
	if !ok {
		return
	}
	switch {
	case m.IsResponse():
		if !s.deliver(m) {
			g.refuse(w, http.StatusBadRequest, rpc.ID{}, rpc.InvalidRequest, "nothing waits for this answer")
			return
		}
		w.WriteHeader(http.StatusAccepted)
	case m.IsNotification():
		release, after, ok := g.o.Rates.Admit(in.who.Key, "")
		if !ok {
			g.tooMany(w, after)
			return
		}
		defer release()
		g.notified(r.Context(), s, in)
		w.WriteHeader(http.StatusAccepted)
	default:
		ctx, cancel := in.who.Context(r.Context())
		defer cancel()
		if !s.flights.begin(m.ID, cancel) {
			g.refuse(w, http.StatusBadRequest, m.ID, rpc.InvalidRequest, "a request with this id is under way")
			return
		}
		defer s.flights.end(m.ID)
		x := &exchange{g: g, who: in.who, client: s.client, link: s.link, session: s, request: m, params: in.params, header: in.header}
		x.reply = &httpReply{w: w, sessions: &g.sessions, stream: in.streamFirst, retry: true}
		x.serve(ctx)
	}
}

// begin begins a session.
func (g *Gateway) begin(w http.ResponseWriter, r *http.Request, in incoming) {
	if in.header.Get(sessionHeader) != "" {
		g.refuse(w, http.StatusBadRequest, in.message.ID, rpc.InvalidRequest, "a session begins without Mcp-Session-Id")
		return
	}
	ctx, cancel := in.who.Context(r.Context())
	defer cancel()
	c := greeted(in.params)
	s, err := g.sessions.make(g, in.who, c)
	if err != nil {
		g.refuse(w, http.StatusBadRequest, in.message.ID, rpc.InvalidParams, err.Error())
		return
	}
	x := &exchange{g: g, who: in.who, client: c, link: s.link, session: s, request: in.message, params: in.params, header: in.header}
	x.reply = &httpReply{w: w, sessions: &g.sessions, stream: in.streamFirst, retry: true}
	x.serve(ctx)
}

// greeted is a client as it says in the handshake what it is. If we do not speak the revision that it asks for, it may take
// another, or go.
func greeted(params rpc.Object) client {
	c := client{era: era.Legacy, version: params.GetString("protocolVersion"), info: params.Get("clientInfo"), capabilities: params.Get("capabilities")}
	if !slices.Contains(era.LegacyVersions, c.version) {
		c.version = era.LegacyVersions[0]
	}
	return c
}

// initialize answers the handshake, and has the session begin.
func (x *exchange) initialize(ctx context.Context) (rpc.Message, int) {
	session, err := x.link.open(ctx, x.who)
	if err != nil {
		return x.failed(err)
	}
	result, err := era.Initialized(x.g.introduces(x.link, session), session.Era(), x.client.version)
	if err != nil {
		return x.refused(ambiguous("what the server says of itself cannot be read"))
	}
	response, status := x.result(rpc.Answer(rpc.ID{}, result))
	if response.Error == nil {
		x.reply.Begin(x.session)
	}
	return response, status
}

// sessionOf is the session that a request names, or refuses it.
func (g *Gateway) sessionOf(w http.ResponseWriter, r *http.Request, who principal) (*session, bool) {
	id := r.Header.Get(sessionHeader)
	if id == "" {
		g.refuse(w, http.StatusBadRequest, rpc.ID{}, rpc.InvalidRequest, "Mcp-Session-Id is missing; begin with initialize")
		return nil, false
	}
	s := g.sessions.find(g, id, who)
	if s == nil {
		g.refuse(w, http.StatusNotFound, rpc.ID{}, rpc.InvalidRequest, "there is no such session; begin with initialize")
		return nil, false
	}
	return s, true
}

// notified takes a notification of a client.
func (g *Gateway) notified(ctx context.Context, s *session, in incoming) {
	switch m := in.message; m.Method {
	case "notifications/initialized": // the server has had ours
	case "notifications/cancelled":
		s.flights.cancel(in.params.Get("requestId"))
	case "notifications/progress":
		s.link.server.Dropped("progress of a client")
	case "notifications/roots/list_changed":
		if s.link.server.Asks.Roots {
			g.passNotification(ctx, s, in)
		}
	default:
		g.passNotification(ctx, s, in)
	}
}

// passNotification hands on what nobody decides about, to a server that has such notifications. No session is begun for it:
// whether its client may have one, it would not have been asked.
func (g *Gateway) passNotification(ctx context.Context, s *session, in incoming) {
	session, _ := s.link.current()
	if session == nil || session.Era() != era.Legacy {
		s.link.server.Dropped("notification of a client")
		return
	}
	x := &exchange{g: g, who: in.who, client: s.client, link: s.link, session: s}
	if err := session.Notify(ctx, rpc.Message{Method: in.message.Method, Params: x.outgoing(ctx, session, in.params).Params()}); err != nil {
		g.o.Logger.Warn("a notification did not reach the server", "server", s.link.server.Name, "why", err)
	}
}

// delete ends a session.
func (g *Gateway) delete(w http.ResponseWriter, r *http.Request) {
	who, ok := g.authenticate(w, r)
	if !ok {
		return
	}
	s, ok := g.sessionOf(w, r, who)
	if !ok {
		return
	}
	g.sessions.end(s)
	w.WriteHeader(http.StatusNoContent)
}

// remember takes what a client of the legacy era says once, and a server of the modern era wants said with each request.
func (x *exchange) remember(ctx context.Context) (rpc.Message, int) {
	s, err := x.link.open(ctx, x.who)
	if err != nil {
		return x.failed(err)
	}
	if s.Era() == era.Legacy {
		return x.call(ctx)
	}
	switch x.request.Method {
	case "logging/setLevel":
		if !slices.Contains(logLevels, x.params.GetString("level")) {
			return x.refused(invalid("level is none of " + joined(logLevels)))
		}
		x.link.setLevel(x.params.GetString("level"))
	default:
		uri := x.params.GetString("uri")
		if uri == "" {
			return x.refused(invalid("uri is missing"))
		}
		on := x.request.Method == "resources/subscribe"
		if x.link.wanted(uri) == on {
			break
		}
		_, _, version, ok := x.link.want([]string{uri}, on)
		if !ok {
			return x.refused(invalid("too many resources; unsubscribe from some"))
		}
		if _, err := x.link.attend(x).until(ctx, version); err != nil {
			if on {
				x.link.want([]string{uri}, false)
			}
			return x.failed(err)
		}
	}
	return x.result(rpc.Answer(rpc.ID{}, jsontext.Value(`{}`)))
}

// logLevels are from the one that says most on.
var logLevels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}
