package flow

import (
	"context"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/mcp/internal/answer"
	"policy-service/pdp/mcp/internal/ask"
	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/link"
	"policy-service/pdp/mcp/internal/rpc"
	"policy-service/pdp/mcp/internal/traces"
	"policy-service/pdp/mcp/internal/upstream"
)

// call sends the request on, and relays what comes for it. What is sent again, with answers that the server has asked
// for, is decided about again.
func (x exchange) call(ctx context.Context) *answer.Answer {
	params, held, refused := x.resumed()
	if refused != nil {
		return refused
	}
	params = x.own(params)
	for round := 0; ; round++ {
		response, err := x.forward(ctx, params, held)
		x.permit = response.permit
		if err != nil {
			return x.failed(err)
		}
		asked, refused := x.inputRequired(response)
		switch {
		case refused != nil:
			return refused
		case asked == nil:
			return x.result(response.Message)
		}
		if _, withheld := x.permit.Result(response.Message); withheld != nil { // what it asks in words may be what is to be taken out
			return answer.Refuse(withheld)
		}
		if response.waits { // it is our own, and was asked while there was a round
			return answer.Of(response.Message)
		}
		if refused := x.noRound(); refused != nil {
			return refused
		}
		switch {
		case x.Client.Era == era.Modern:
			return x.passOn(*asked)
		case round == mostRounds:
			return answer.Ambiguous("the server asks for input again and again")
		}
		if params, err = x.gather(ctx, *asked, params); err != nil {
			return answer.Ambiguous(err.Error())
		}
		if x.tool != nil { // which may have become another while the client was asked
			if x.Target, refused = x.findThere(ctx); refused != nil {
				return refused
			}
		}
		if x, refused = x.ask(ctx, goesOn(x.permit)); refused != nil {
			return refused
		}
	}
}

// mostRounds is how often a server may ask for input for one request.
const mostRounds = 10

// forward sends params, or the answer that a held request waits for, and relays what comes until the response.
func (x exchange) forward(ctx context.Context, params rpc.Object, h *held) (_ relayed, err error) {
	if h != nil {
		return x.goOn(ctx, h, params)
	}
	if err := x.logs(ctx); err != nil {
		return relayed{permit: x.permit}, err
	}
	token, sent := x.progress(params)
	// The stream may be held when this request has ended. As long as it is not, it ends with it.
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	r := &relay{exchange: x, token: token, cancel: cancel}
	defer context.AfterFunc(ctx, cancel)()
	send := x.link.Send
	if x.fulfils != nil {
		send = x.link.SendOnce
	}
	r.session, r.stream, err = send(life, x.Who, func(s upstream.Session) upstream.Request {
		q := upstream.Request{Method: x.Request.Method, Params: x.outgoing(life, s, sent)}
		if x.tool != nil && s.Era() == era.Modern {
			q.Headers = era.ParamHeaders(x.tool.Headers, params.Get("arguments"))
		}
		return q
	})
	x.link.Server.Sent(err)
	if err != nil {
		cancel()
		return relayed{permit: x.permit}, err
	}
	begun := x.g.o.Now()
	defer func() { x.g.o.Meters.Sent(ctx, x.g.o.Now().Sub(begun)) }()
	return r.run(ctx)
}

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

// What goes to a server is what was decided about, byte for byte, but for what MCP itself has beside it: who speaks which
// revision, by which token progress is known, and what is between the client and the gateway alone.

// betweenUs are members of params that are for the gateway.
var betweenUs = []string{"capability", "proof", "onBehalfOf", "requestId"}

// outgoing are the params of this exchange as the server of s gets them.
func (x Target) outgoing(ctx context.Context, s upstream.Session, params rpc.Object) rpc.Object {
	params = params.Without(func(name string) bool { return slices.Contains(betweenUs, name) })
	params = link.WithMeta(params, traces.Traced(ctx, x.g.metaOf(params)))
	return x.link.Outgoing(s, x.Client, params)
}

// metaOf are the members of _meta of something that a client sends, as far as they are for the server, too.
func (g *Flow) metaOf(o rpc.Object) rpc.Object {
	return o.GetObject("_meta").Without(func(name string) bool { return !g.goesOn(name) })
}

// answered is what a client answers to a server, nil if it does not, as the server gets it.
func (g *Flow) answered(v jsontext.Value) jsontext.Value {
	o, err := rpc.ParseObject(v)
	if err != nil || o.Get("_meta") == nil {
		return v
	}
	return link.WithMeta(o, g.metaOf(o)).Value()
}

// goesOn reports whether a member of a client's _meta is for the server, too.
func (g *Flow) goesOn(name string) bool {
	switch name {
	case "progressToken", "traceparent", "tracestate":
		return true
	}
	return slices.Contains(g.o.Meta, name) && !strings.HasPrefix(name, link.OwnMeta)
}

// progressToken is by what the client wants to hear of progress, nil if it does not.
func (x *Call) progressToken() jsontext.Value {
	return x.Params.GetObject("_meta").Get("progressToken")
}

// progress is how progress of this request is known, and the params with our token for it.
func (x *Call) progress(params rpc.Object) (progressToken, rpc.Object) {
	theirs := x.progressToken()
	if theirs == nil {
		return progressToken{}, params
	}
	ours := "p" + strconv.FormatUint(x.g.tokens.Add(1), 10)
	return progressToken{ours, theirs}, params.With("_meta", params.GetObject("_meta").With("progressToken", rpc.String(ours)).Value())
}
