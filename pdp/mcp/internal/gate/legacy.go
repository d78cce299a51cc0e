package gate

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/mcp/internal/ask"
	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/reply"
	"policy-service/pdp/mcp/internal/rpc"
	"policy-service/pdp/mcp/internal/upstream"
	"policy-service/pdp/mcp/wire"
)

// The front of the legacy era: a handshake, then requests, notifications and answers that name a session.

func (g *Gateway) postLegacy(w http.ResponseWriter, r *http.Request, in *incoming) (context.Context, *visit) {
	m := &in.message
	if v := in.header.Get(versionHeader); v != "" && !slices.Contains(era.LegacyVersions, v) {
		g.refuse(w, http.StatusBadRequest, m.ID, rpc.InvalidRequest, "this revision of the protocol is not supported")
		return nil, nil
	}
	if m.Method == "initialize" {
		return g.begin(w, r, in)
	}
	s, ok := g.sessionOf(w, r, in.who)
	if !ok {
		return nil, nil
	}
	switch {
	case m.IsResponse():
		_, _ = g.personMay(in.who)
		g.takeAnswer(w, r, s, in)
	case m.Method == rpc.Respond && m.IsNotification():
		ctx, cancel := in.who.Context(r.Context())
		v := s.visit(g, w, in, cancel)
		v.reply = unheard{w}
		return ctx, v
	case m.Method == wire.MethodAccess:
		g.refuseAccess(w, in.who)
	case m.IsNotification():
		release, limit, after := g.admit(in.who, "", m.Method == "notifications/cancelled") // which frees what others wait for
		if limit != "" {
			g.tooMany(w, after)
			break
		}
		defer release()
		g.notified(r.Context(), s, in)
		w.WriteHeader(http.StatusAccepted)
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

// visit is that of a request.
func (s *session) visit(g *Gateway, w http.ResponseWriter, in *incoming, ends ...func()) *visit {
	back := reply.Over(w, in.streamFirst, true)
	back.Begun = func() {
		if g.sessions.add(s) == nil {
			go s.close()
		}
	}
	return newVisit(Call{g: g, who: in.who, client: s.client, reach: s.reach, session: s, request: in.message, params: in.params, header: in.header, reply: back}, ends...)
}

// begin has a session begin.
func (g *Gateway) begin(w http.ResponseWriter, r *http.Request, in *incoming) (context.Context, *visit) {
	if in.header.Get(sessionHeader) != "" {
		g.refuse(w, http.StatusBadRequest, in.message.ID, rpc.InvalidRequest, "a session begins without Mcp-Session-Id")
		return nil, nil
	}
	if !g.sessions.hasRoom(in.who) {
		g.tooMany(w, time.Second)
		return nil, nil
	}
	s, err := g.sessions.make(in.who, greeted(in.params))
	if err != nil {
		g.refuse(w, http.StatusBadRequest, in.message.ID, rpc.InvalidParams, err.Error())
		return nil, nil
	}
	ctx, cancel := in.who.Context(r.Context())
	return ctx, s.visit(g, w, in, cancel)
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
func (x exchange) initialize(ctx context.Context) *Answer {
	begun := false
	defer func() {
		if !begun { // nobody else would end what has been opened for it, or is just being opened
			x.g.background(x.session.close)
		}
	}()
	said, err := x.introduction(ctx)
	if err != nil {
		return x.failed(err)
	}
	result, err := era.Initialized(said.server, said.era, x.client.version, x.g.extensions())
	if err != nil {
		return ambiguous("what the server says of itself cannot be read")
	}
	answer := x.result(rpc.Answer(rpc.ID{}, result))
	if answer.Message.Error == nil {
		begun = true
		x.reply.Begin(x.session.id)
	}
	return answer
}

// sessionOf is the session that a request names, or refuses it.
func (g *Gateway) sessionOf(w http.ResponseWriter, r *http.Request, who principal) (*session, bool) {
	id := r.Header.Get(sessionHeader)
	if id == "" {
		g.refuse(w, http.StatusBadRequest, rpc.ID{}, rpc.InvalidRequest, "Mcp-Session-Id is missing; begin with initialize")
		return nil, false
	}
	s := g.sessions.find(id, who)
	if s == nil {
		g.refuse(w, http.StatusNotFound, rpc.ID{}, rpc.InvalidRequest, "there is no such session; begin with initialize")
		return nil, false
	}
	return s, true
}

// notified takes a notification of a client. Nothing travels that no policy decides about, but that roots have changed, by its
// name. That a request is given up, the server hears from us.
func (g *Gateway) notified(ctx context.Context, s *session, in *incoming) {
	holds := &holds{}
	defer holds.end()
	c := &Call{g: g, who: in.who, client: s.client, reach: s.reach, session: s, request: in.message, params: in.params, holds: holds}
	x := exchange{Target: Target{Call: c, link: s.reach.only()}}
	switch m := in.message; m.Method {
	case "notifications/initialized": // the server has had ours
	case "notifications/cancelled":
		s.flights.Cancel(in.params.Get("requestId"))
	case "notifications/progress":
		g.o.Meters.Drop("progress of a client")
	case rootsChanged:
		each(ctx, x, func(ctx context.Context, x exchange) (none, error) {
			if !x.link.server.Asks.Roots {
				return none{}, nil
			}
			if session := x.listening(); session != nil {
				x.pass(ctx, session, rootsChanged, rpc.Object{})
			}
			return none{}, nil
		})
	default:
		if g.o.Asker.Maps(m.Method) {
			x.passMapped(ctx)
			return
		}
		g.o.Meters.Drop("notification of a client")
	}
}

const rootsChanged = "notifications/roots/list_changed"

// passMapped hands on a notification that the operator has a mapping for, if the PDP permits it.
func (x exchange) passMapped(ctx context.Context) {
	if x.link == nil {
		x.g.o.Meters.Drop("notification for one of several servers")
		return
	}
	session := x.listening()
	if session == nil { // a notification that no server takes is not asked about
		return
	}
	if _, refused := x.ask(ctx, ask.Answered{}); refused != nil {
		x.note(refused)
		x.link.server.Dropped("notification that is denied")
		return
	}
	x.pass(ctx, session, x.request.Method, x.params)
}

// listening is the session that takes a notification of the client. None is begun for it: the PDP was not asked whether the
// client may have one.
func (x Target) listening() upstream.Session {
	session, _ := x.link.current()
	if session == nil || session.Era() != era.Legacy {
		x.link.server.Dropped("notification of a client")
		return nil
	}
	return session
}

// pass hands on a notification.
func (x Target) pass(ctx context.Context, session upstream.Session, method string, params rpc.Object) {
	if err := session.Notify(ctx, rpc.Message{Method: method, Params: x.outgoing(ctx, session, params).Params()}); err != nil {
		x.g.o.Logger.Warn("a notification did not reach the server", "server", x.link.server.Name, "why", err)
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
	_, _ = g.personMay(who)
	g.sessions.end(s)
	w.WriteHeader(http.StatusNoContent)
}

// remember takes what a client of the legacy era says once, and a server of the modern era wants said with each request.
func (x exchange) remember(ctx context.Context) *Answer {
	switch err := x.mayOpen(ctx); err {
	case nil:
	case errClosed:
		x.link.setLevel(x.params.GetString("level"))
		return x.result(rpc.Answer(rpc.ID{}, jsontext.Value(`{}`)))
	default:
		return x.failed(err)
	}
	s, err := x.opened(ctx)
	if err != nil {
		return x.failed(err)
	}
	if s.Era() == era.Legacy {
		answer := x.call(ctx)
		if answer.Message.Error == nil {
			x.link.note(x.request.Method, x.params)
		}
		return answer
	}
	switch x.request.Method {
	case "logging/setLevel":
		x.link.setLevel(x.params.GetString("level"))
	default:
		uri := x.params.GetString("uri")
		if uri == "" {
			return invalid("uri is missing")
		}
		on := x.request.Method == "resources/subscribe"
		if x.link.wanted(uri) == on {
			break
		}
		_, _, version, ok := x.link.want([]string{uri}, on)
		if !ok {
			return invalid("too many resources; unsubscribe from some")
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

// setLevel tells all servers how much of their logs the client wants.
func (x exchange) setLevel(ctx context.Context) *Answer {
	level := x.params.GetString("level")
	if !slices.Contains(logLevels, level) {
		return invalid("level is none of " + joined(logLevels))
	}
	if x.link != nil {
		return x.remember(ctx)
	}
	_, err := there(each(ctx, x, func(ctx context.Context, x exchange) (none, error) {
		defer x.link.setLevel(level) // which a session that is opened later is told
		if err := x.mayOpen(ctx); err != nil {
			return none{}, err
		}
		s, err := x.opened(ctx)
		if err != nil || s.Era() == era.Modern || !offers(s, "logging") {
			return none{}, err
		}
		response, err := x.forward(ctx, x.params, nil)
		if err == nil && response.Error != nil {
			err = answered(response.Message)
		}
		return none{}, err
	}))
	if err != nil {
		return x.failed(err)
	}
	return x.result(rpc.Answer(rpc.ID{}, jsontext.Value(`{}`)))
}

// logLevels are from the one that says most on.
var logLevels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}
