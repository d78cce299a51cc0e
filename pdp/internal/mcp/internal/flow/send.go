package flow

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/internal/mcp/internal/answer"
	"policy-service/pdp/internal/mcp/internal/ask"
	"policy-service/pdp/internal/mcp/internal/era"
	"policy-service/pdp/internal/mcp/internal/link"
	"policy-service/pdp/internal/mcp/internal/rates"
	"policy-service/pdp/internal/mcp/internal/traces"
	"policy-service/pdp/internal/mcp/internal/upstream"
	"policy-service/pdp/internal/rpc"
)

// call sends the request, and relays the messages that come for it. A request that is sent again, with answers to the server's
// questions, is decided about again.
func (x exchange) call(ctx context.Context) *answer.Answer {
	params, held, refused := x.resumedParams()
	if refused != nil {
		return refused
	}
	params = x.withServerNames(params)
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
		// The words of a question may be a part that the permit removes.
		if _, withheld := x.permit.Result(response.Message); withheld != nil {
			return answer.Refuse(withheld)
		}
		if response.waits { // the gateway made this response, while a round was left
			return answer.Of(response.Message)
		}
		if refused := x.noRoundLeft(); refused != nil {
			return refused
		}
		switch {
		case x.Client.Era == era.Modern:
			return x.requireInput(*asked)
		case round == mostRounds:
			return answer.Ambiguous("the server asks for input again and again")
		}
		if params, err = x.gather(ctx, *asked, params); err != nil {
			return answer.Ambiguous(err.Error())
		}
		if x.tool != nil { // the tool may have changed while the client was asked
			if x.Target, refused = x.findListed(ctx); refused != nil {
				return refused
			}
		}
		if x, refused = x.ask(ctx, continuationOf(x.permit)); refused != nil {
			return refused
		}
	}
}

const mostRounds = 10

// forward sends params, or the answer that a held request waits for, and relays messages until the response.
func (x exchange) forward(ctx context.Context, params rpc.Object, h *heldAnswer) (_ relayed, err error) {
	if h != nil {
		return x.resumeHeld(ctx, h, params)
	}
	if err := x.setServerLog(ctx); err != nil {
		return relayed{permit: x.permit}, err
	}
	token, sent := x.progress(params)
	// A stream that is held outlives this request. Any other stream ends with the request.
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	r := &relay{exchange: x, link: x.link, token: token, cancel: cancel}
	defer context.AfterFunc(ctx, cancel)()
	send := x.link.Send
	if x.fulfils != nil {
		send = x.link.SendOnce
	}
	rates.BillOf(ctx).Relay()
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

// relay relays the messages for one request from the server to the client.
type relay struct {
	exchange exchange   // which brings the answer: the first one, or one that continues it
	link     *link.Link // of the first one, which has the session
	session  upstream.Session
	stream   upstream.Stream
	cancel   context.CancelFunc
	token    progressToken
}

// relayed is the response of a server, with the permit under which it leaves.
type relayed struct {
	rpc.Message
	permit *ask.Permit
	// waits is set if the gateway made the response, because the server waits for the client.
	waits bool
}

// close gives up the server's answer, if it has not come yet.
func (r *relay) close() {
	r.stream.Close()
	r.cancel()
}

// progressToken are the tokens for progress of a request: the gateway's at the server, and the client's, nil if the client
// wants no progress.
type progressToken struct {
	gateway string
	client  jsontext.Value
}

// run relays until the response, or until ctx ends; the end of ctx must end the stream through cancel. If the server waits for
// an answer that only the client's next request can bring, run returns the response that asks for it.
func (r *relay) run(ctx context.Context) (relayed, error) {
	held := false
	defer func() {
		if !held { // also if a message of the server causes a panic
			r.close()
		}
	}()
	for {
		m, err := r.stream.Next()
		if err != nil {
			switch {
			case ctx.Err() != nil:
				err = upstream.ClientGone(ctx.Err())
			case errors.Is(err, io.EOF):
				err = &upstream.Error{Detail: "the server ended its answer before the response"}
			}
			return r.withPermit(m, false), err
		}
		switch {
		case m.IsResponse():
			x := r.exchange
			return r.withPermit(x.link.Translated(x.Request.Method, m, r.session, x.Client.Era), false), nil
		case m.IsRequest():
			waits, refused := r.answerRequest(ctx, m)
			if refused != nil {
				r.cancelRequest(ctx, m)
				return r.withPermit(m, false), refused
			}
			if waits != nil {
				held = true
				return r.withPermit(*waits, true), nil
			}
		default:
			r.relayNotification(m)
		}
	}
}

func (r *relay) withPermit(m rpc.Message, waits bool) relayed {
	return relayed{m, r.exchange.permit, waits}
}

func (r *relay) relayNotification(m rpc.Message) {
	x := r.exchange
	m = era.NotificationFrom(m)
	switch {
	case m.Method == "notifications/progress":
		params, err := m.ParamsObject()
		if err != nil || r.token.client == nil || params.GetString("progressToken") != r.token.gateway {
			x.link.Server.Dropped("progress of another request")
			return
		}
		m.Params = params.With("progressToken", r.token.client).Value()
	case m.Method == "notifications/message":
		if !x.wantsLog(m) {
			x.link.Server.Dropped("log message that nobody wants")
			return
		}
		if x.link.PassesChangesOnly() { // it may belong to another request
			x.link.Server.Dropped(link.TextWithheld)
			return
		}
	case link.IsChange(m.Method):
		x.link.Publish(link.Notification{Message: m, From: r.session.Era()})
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

// answerRequest gets an answer for a request of a server of the legacy era. If only the client's next request can bring the
// answer, waits is the response that asks for it. For a call that people have approved each answer is a round, about which the
// PDP decides as about a call that is sent again. If the PDP refuses the round, the call ends.
func (r *relay) answerRequest(ctx context.Context, m rpc.Message) (waits *rpc.Message, refused *answer.Answer) {
	x := r.exchange
	shown, no := link.Shown(x.link.Server, m, x.Client.Capabilities)
	switch {
	case no != nil:
	case !x.permit.Passes():
		no = &link.Unasked{Why: "nothing is asked while the result is to be changed"}
	case x.Client.Era == era.Modern && !era.TakesInput(x.Request.Method):
		no = &link.Unasked{Why: "a client of its revision is asked nothing during " + x.Request.Method}
	// The response would leave under another permit than the current one.
	case lists[x.Request.Method].id != "" && continuationOf(x.permit).Continues != nil:
		no = &link.Unasked{Why: "nothing is asked during " + x.Request.Method + ", which people have approved"}
	case x.fulfils != nil: // the fulfiller's answer would reach the requester, in the result
		no = &link.Unasked{Why: "nothing is asked while a request of somebody else is fulfilled"}
	}
	if no != nil {
		x.link.NotPassed(ctx, r.session, m, x.Client.Era, no)
		return nil, nil
	}
	if refused := x.noRoundLeft(); refused != nil {
		return nil, refused
	}
	if x.Client.Era == era.Modern {
		return r.hold(shown, m.ID), nil
	}
	answer := x.askClient(ctx, shown)
	if by := continuationOf(x.permit); by.Continues != nil {
		if r.exchange, refused = x.ask(ctx, by); refused != nil {
			return nil, refused
		}
	}
	answer.ID = m.ID
	if err := r.session.Notify(ctx, answer); err != nil {
		x.g.o.Logger.Warn("the answer to a request of the server did not reach it", slog.Group("", "server", x.link.Server.Name), "why", err)
	}
	return nil, nil
}

// A server gets the params that were decided about, byte for byte, without members that MCP does not have there, and without
// those between the client and the gateway. What MCP itself adds is the gateway's: client and revision, and the token for
// progress.

// outgoing returns params of this exchange in the form for the server of s.
func (x Target) outgoing(ctx context.Context, s upstream.Session, params rpc.Object) rpc.Object {
	params = params.Without(func(name string) bool { return slices.Contains(ask.GatewayParams, name) })
	params = era.WithoutUnknown(x.Request.Method, x.Client.Version, params, func(name string) bool {
		followUp := name == "inputResponses" || name == "requestState" // the gateway has written both
		return followUp && s.Era() == era.Modern && era.TakesInput(x.Request.Method) || x.link.Server.TakesParam(x.Request.Method, name)
	})
	params = link.WithMeta(params, traces.Traced(ctx, x.g.metaOf(params)))
	return x.link.Outgoing(s, x.Client, params)
}

// metaOf are the members of a client's _meta that are forwarded to the server.
func (g *Flow) metaOf(o rpc.Object) rpc.Object {
	return o.GetObject("_meta").Without(func(name string) bool { return !g.forwardsMeta(name) })
}

// serverAnswer is a client's answer in the form for a server, nil if the client gives none.
func (g *Flow) serverAnswer(v jsontext.Value) jsontext.Value {
	o, err := rpc.ParseObject(v)
	if err != nil || o.Get("_meta") == nil {
		return v
	}
	return link.WithMeta(o, g.metaOf(o)).Value()
}

func (g *Flow) forwardsMeta(name string) bool {
	switch name {
	case "progressToken", "traceparent", "tracestate":
		return true
	}
	return slices.Contains(g.o.Meta, name) && !strings.HasPrefix(name, link.OwnMeta)
}

func (x *Call) progressToken() jsontext.Value {
	return x.Params.GetObject("_meta").Get("progressToken")
}

// progress returns the tokens for progress of this request, and the params with the gateway's token.
func (x *Call) progress(params rpc.Object) (progressToken, rpc.Object) {
	client := x.progressToken()
	if client == nil {
		return progressToken{}, params
	}
	gateway := "p" + strconv.FormatUint(x.g.tokens.Add(1), 10)
	return progressToken{gateway, client}, params.With("_meta", params.GetObject("_meta").With("progressToken", rpc.String(gateway)).Value())
}
