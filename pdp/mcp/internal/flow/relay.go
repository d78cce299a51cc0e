package flow

import (
	"context"
	"errors"
	"io"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/mcp/internal/answer"
	"policy-service/pdp/mcp/internal/ask"
	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/link"
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
	return x.link.Translated(x.Request.Method, m, of, x.Client.Era)
}

// note relays a notification, or drops it.
func (r *relay) note(m rpc.Message) {
	x := r.exchange
	m = era.NotificationFrom(m)
	switch {
	case m.Method == "notifications/progress":
		params, err := m.ParamsObject()
		if err != nil || r.token.theirs == nil || params.GetString("progressToken") != r.token.ours {
			x.link.Server.Dropped("progress of another request")
			return
		}
		m.Params = params.With("progressToken", r.token.theirs).Value()
	case m.Method == "notifications/message":
		if !x.wantsLog(m) {
			x.link.Server.Dropped("log message that nobody wants")
			return
		}
		if x.link.Silenced() { // nothing says that it is of this request
			x.link.Server.Dropped(link.WordsWhileSilent)
			return
		}
	case link.IsChange(m.Method):
		x.link.Tell(link.Said{Message: m, From: r.session.Era()})
		return
	default:
		x.link.Server.Dropped("notification that is not of a request")
		return
	}
	m = x.link.Signed(m)
	if !x.permit.Passes() {
		x.link.Server.Dropped("notification while the result is to be changed")
		return
	}
	_ = x.Reply.Interim(m)
}

// asked has a request of a server of the legacy era answered. If only the next request of the client can bring the answer,
// waits is the response that asks for it. Of a call that people have approved each answer is a round, which the PDP takes as
// it takes one of a call that is sent again; if it refuses that, the call ends.
func (r *relay) asked(ctx context.Context, m rpc.Message) (waits *rpc.Message, refused *answer.Answer) {
	x := r.exchange
	shown, no := link.Shown(x.link.Server, m, x.Client.Capabilities)
	switch {
	case no != nil:
	case !x.permit.Passes():
		no = &link.Unasked{Why: "nothing is asked while the result is to be changed"}
	case x.Client.Era == era.Modern && !era.TakesInput(x.Request.Method):
		no = &link.Unasked{Why: "a client of its revision is asked nothing during " + x.Request.Method}
	case lists[x.Request.Method].id != "" && goesOn(x.permit).Continues != nil: // the response would leave by another permit than the one of now
		no = &link.Unasked{Why: "nothing is asked during " + x.Request.Method + ", which people have approved"}
	case x.fulfils != nil: // it would come back to the other, in the result
		no = &link.Unasked{Why: "nothing is asked while a request of somebody else is fulfilled"}
	}
	if no != nil {
		x.link.NotPassed(ctx, r.session, m, x.Client.Era, no)
		return nil, nil
	}
	if refused := x.noRound(); refused != nil {
		return nil, refused
	}
	if x.Client.Era == era.Modern {
		return r.hold(shown, m.ID), nil
	}
	answer := x.asks(ctx, shown)
	if by := goesOn(x.permit); by.Continues != nil {
		if r.exchange, refused = x.ask(ctx, by); refused != nil {
			return nil, refused
		}
	}
	answer.ID = m.ID
	if err := r.session.Notify(ctx, answer); err != nil {
		x.g.o.Logger.Warn("the answer to a request of the server did not reach it", "server", x.link.Server.Name, "why", err)
	}
	return nil, nil
}
