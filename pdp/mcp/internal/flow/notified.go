package flow

import (
	"context"

	"policy-service/pdp/mcp/internal/ask"
	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/rpc"
	"policy-service/pdp/mcp/internal/upstream"
)

// Notified hands on a notification of a client.
func (g *Flow) Notified(ctx context.Context, c Call) {
	c.g, c.holds = g, &holds{}
	defer c.holds.end()
	x := exchange{Target: Target{Call: &c, link: c.Reach.Only()}}
	switch {
	case x.Request.Method == rootsChanged:
		each(ctx, x, func(ctx context.Context, x exchange) (none, error) {
			if !x.link.Server.Asks.Roots {
				return none{}, nil
			}
			if session := x.notifiable(); session != nil {
				x.pass(ctx, session, rootsChanged, rpc.Object{})
			}
			return none{}, nil
		})
	case g.o.Asker.Maps(x.Request.Method):
		x.passMapped(ctx)
	default:
		g.o.Meters.Drop("notification of a client")
	}
}

// passMapped hands on a notification that the operator has a mapping for, if the PDP permits it.
func (x exchange) passMapped(ctx context.Context) {
	if x.link == nil {
		x.g.o.Meters.Drop("notification for one of several servers")
		return
	}
	session := x.notifiable()
	if session == nil { // a notification that no server takes is not asked about
		return
	}
	if _, refused := x.ask(ctx, ask.Answered{}); refused != nil {
		x.note(refused)
		x.link.Server.Dropped("notification that is denied")
		return
	}
	x.pass(ctx, session, x.Request.Method, x.Params)
}

// notifiable is the session that takes a notification of the client. None is begun for it: the PDP was not asked whether the
// client may have one.
func (x Target) notifiable() upstream.Session {
	session, _ := x.link.Current()
	if session == nil || session.Era() != era.Legacy {
		x.link.Server.Dropped("notification of a client")
		return nil
	}
	return session
}

// pass hands on a notification.
func (x Target) pass(ctx context.Context, session upstream.Session, method string, params rpc.Object) {
	if err := session.Notify(ctx, rpc.Message{Method: method, Params: x.outgoing(ctx, session, params).Params()}); err != nil {
		x.g.o.Logger.Warn("a notification did not reach the server", "server", x.link.Server.Name, "why", err)
	}
}

const rootsChanged = "notifications/roots/list_changed"
