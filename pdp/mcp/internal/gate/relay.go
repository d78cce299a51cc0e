package gate

import (
	"context"
	"errors"
	"io"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/mcp/internal/ask"
	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/rpc"
	"policy-service/pdp/mcp/internal/upstream"
)

// relay hands what comes for one request from the server to the client.
type relay struct {
	exchange exchange
	session  upstream.Session
	stream   upstream.Stream
	cancel   context.CancelFunc
	token    progressToken
}

// relayed is the response of a server, with the permit by which it leaves.
type relayed struct {
	rpc.Message
	permit *ask.Permit
	// waits is set if the response is our own, because the server waits for the client.
	waits bool
}

// close gives the answer up, if it has not come.
func (r *relay) close() {
	r.stream.Close()
	r.cancel()
}

// progressToken is what progress of a request is known by: to the server, and to the client, nil if it wants none.
type progressToken struct {
	ours   string
	theirs jsontext.Value
}

// run relays until the response, or until ctx ends, which is to end the stream by its cancel. The response of a server which
// waits for an answer that only the client's next request can bring is made here.
func (r *relay) run(ctx context.Context) (relayed, error) {
	held := false
	defer func() {
		if !held { // also if what the server says makes somebody panic
			r.close()
		}
	}()
	for {
		m, err := r.stream.Next()
		if err != nil {
			switch {
			case ctx.Err() != nil:
				err = &upstream.Error{Detail: "the client has gone", Err: ctx.Err()}
			case errors.Is(err, io.EOF):
				err = &upstream.Error{Detail: "the server ended its answer before the response"}
			}
			return r.gives(m, false), err
		}
		switch {
		case m.IsResponse():
			return r.gives(r.exchange.translated(m, r.session), false), nil
		case m.IsRequest():
			waits, refused := r.asked(ctx, m)
			if refused != nil {
				r.cancels(ctx, m)
				return r.gives(m, false), refused
			}
			if waits != nil {
				held = true
				return r.gives(*waits, true), nil
			}
		default:
			r.note(m)
		}
	}
}

func (r *relay) gives(m rpc.Message, waits bool) relayed {
	return relayed{m, r.exchange.permit, waits}
}

// translated is a response as the client's era has it, and says whose it is.
func (x Target) translated(m rpc.Message, of upstream.Session) rpc.Message {
	m = era.Relayed(x.request.Method, x.link.server.Name, m, of.Era(), x.client.era)
	if x.client.era == era.Modern {
		m = era.WithServer(m, x.link.serverInfo(of))
	}
	return m
}

// note relays a notification, or drops it.
func (r *relay) note(m rpc.Message) {
	x := r.exchange
	m = era.NotificationFrom(m)
	switch {
	case m.Method == "notifications/progress":
		params, err := m.ParamsObject()
		if err != nil || r.token.theirs == nil || params.GetString("progressToken") != r.token.ours {
			x.link.server.Dropped("progress of another request")
			return
		}
		m.Params = params.With("progressToken", r.token.theirs).Value()
	case m.Method == "notifications/message":
		if !x.wantsLog(m) {
			x.link.server.Dropped("log message that nobody wants")
			return
		}
		if x.link.silenced() { // nothing says that it is of this request
			x.link.server.Dropped(wordsWhileSilent)
			return
		}
	case isChange(m.Method):
		x.link.tell(said{m, r.session.Era()})
		return
	default:
		x.link.server.Dropped("notification that is not of a request")
		return
	}
	m = x.signed(m)
	if !x.permit.Passes() {
		x.link.server.Dropped("notification while the result is to be changed")
		return
	}
	_ = x.reply.Interim(m)
}

// signed is a message of a server's log that says of which of several servers it is.
func (x Target) signed(m rpc.Message) rpc.Message {
	if !x.g.several() || m.Method != "notifications/message" {
		return m
	}
	params, err := m.ParamsObject()
	if err != nil {
		return m
	}
	logger := x.link.server.Name
	if own := params.GetString("logger"); own != "" {
		logger += ": " + own
	}
	m.Params = params.With("logger", rpc.String(logger)).Value()
	return m
}

// asked has a request of a server of the legacy era answered. If only the next request of the client can bring the answer,
// waits is the response that asks for it. Of a call that people have approved each answer is a round, which the PDP takes as
// it takes one of a call that is sent again; if it refuses that, the call ends.
func (r *relay) asked(ctx context.Context, m rpc.Message) (waits *rpc.Message, refused *Answer) {
	x := r.exchange
	shown, no := shown(x.link.server, m, x.client.capabilities)
	switch {
	case no != nil:
	case !x.permit.Passes():
		no = &unasked{why: "nothing is asked while the result is to be changed"}
	case x.client.era == era.Modern && !era.TakesInput(x.request.Method):
		no = &unasked{why: "a client of its revision is asked nothing during " + x.request.Method}
	case lists[x.request.Method].id != "" && goesOn(x.permit).Continues != nil: // the response would leave by another permit than the one of now
		no = &unasked{why: "nothing is asked during " + x.request.Method + ", which people have approved"}
	case x.fulfils != nil: // it would come back to the other, in the result
		no = &unasked{why: "nothing is asked while a request of somebody else is fulfilled"}
	}
	if no != nil {
		x.g.notPassed(ctx, x.link, r.session, m, x.client.era, no)
		return nil, nil
	}
	if refused := x.noRound(); refused != nil {
		return nil, refused
	}
	if x.client.era == era.Modern {
		return r.hold(shown, m.ID), nil
	}
	answer := x.session.ask(ctx, x.g, shown, x.reply.Interim)
	if by := goesOn(x.permit); by.Continues != nil {
		if r.exchange, refused = x.ask(ctx, by); refused != nil {
			return nil, refused
		}
	}
	answer.ID = m.ID
	if err := r.session.Notify(ctx, answer); err != nil {
		x.g.o.Logger.Warn("the answer to a request of the server did not reach it", "server", x.link.server.Name, "why", err)
	}
	return nil, nil
}
