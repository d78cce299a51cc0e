package gate

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"go.opentelemetry.io/otel/trace"

	"policy-service/pdp/mcp/internal/ask"
	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/identity"
	"policy-service/pdp/mcp/internal/rpc"
	"policy-service/pdp/mcp/internal/upstream"
)

// exchange is one request of a client, of either era, on its way through the gateway. There is one way: what the client
// wants is looked up, the PDP is asked, and only then is anything sent. What is for all of several servers goes to [each].
type exchange struct {
	g       *Gateway
	who     *identity.Principal
	client  client
	reach   *reach
	link    *link    // to the server that the request is for, nil if it is for several
	session *session // of a client of the legacy era, nil for others
	request rpc.Message
	params  rpc.Object
	header  http.Header
	reply   reply
	tool    *tool
	permit  *ask.Permit
	brought brought
	// outcome is how it ended.
	outcome string
	// waiting is set if the response is one that we made because the server waits for the client.
	waiting bool
}

// serve answers the request. What was done of what the PDP obliged to is reported once the response has left.
func (x *exchange) serve(ctx context.Context) {
	ctx, leave, ok := x.g.enter(ctx)
	if !ok {
		m, status := x.failed(errLinkClosed)
		m.ID = x.request.ID
		_ = x.reply.Final(status, m)
		return
	}
	defer leave()
	if x.request.Method != "initialize" { // whose answer has a header that is known late
		defer keepAlive(x.reply)()
	}
	ctx, span := x.g.o.Tracer.Start(ctx, "mcp "+labelOf(x.request.Method), trace.WithSpanKind(trace.SpanKindServer))
	defer func() { // also if something panics meanwhile: what was done of what is owed was done
		if x.permit != nil {
			x.permit.Done(context.WithoutCancel(ctx))
		}
	}()
	response, status := x.answer(ctx)
	response.ID = x.request.ID
	endStep(span, x.outcome)
	x.g.o.Meters.call(ctx, x.request.Method, x.outcome)
	_ = x.reply.Final(status, response)
}

// answer is the response, whoever made it, and the status it has if nothing went before it.
func (x *exchange) answer(ctx context.Context) (rpc.Message, int) {
	if x.request.Method == "ping" && x.client.era == era.Legacy {
		x.outcome = outcomeAnswered
		return rpc.Answer(rpc.ID{}, jsontext.Value(`{}`)), http.StatusOK
	}
	release, refused := x.admit()
	if refused != nil {
		return x.refused(refused)
	}
	defer release()
	switch x.request.Method {
	case "subscriptions/listen":
		release() // it lasts, and is in nobody's way
		end, ok := x.g.lasting(x.who.Key)
		if !ok {
			return x.refused(limited(time.Second))
		}
		defer end()
	default:
		if refused := x.route(ctx); refused != nil {
			return x.refused(refused)
		}
		if fault := x.mirrored(); fault != nil {
			x.outcome = outcomeInvalid
			return rpc.Failure(rpc.ID{}, *fault), http.StatusBadRequest
		}
		if response, status, is := x.misfit(ctx); is {
			return response, status
		}
		if x.brought, refused = bring(x); refused != nil {
			return x.refused(refused)
		}
	}
	if end := decide(ctx, x, release); end != nil {
		return end.response, end.status
	}
	switch x.request.Method {
	case "initialize":
		return x.initialize(ctx)
	case "server/discover":
		return x.discover(ctx)
	case "tools/list":
		return x.listTools(ctx)
	case "prompts/list", "resources/list", "resources/templates/list":
		return x.listOther(ctx)
	case "subscriptions/listen":
		return x.listen(ctx)
	case "logging/setLevel":
		return x.setLevel(ctx)
	case "resources/subscribe", "resources/unsubscribe":
		return x.remember(ctx)
	}
	if x.link == nil { // the operator has a mapping for a method of his own
		return x.refused(refusal(ask.Unknown, rpc.MethodNotFound, "unknown method", "with several servers nobody knows for which of them the method is"))
	}
	return x.call(ctx)
}

func (x *exchange) refused(r *ask.Refusal) (rpc.Message, int) {
	if x.outcome = outcomeRefused; r.Kind == ask.Unknown {
		x.outcome = outcomeInvalid
	}
	x.g.o.Logger.Info("refused", "method", x.request.Method, "code", r.Code, "why", r.Why, "principal", x.who.Key)
	status := r.Status
	if status == 0 {
		status = http.StatusOK
	}
	return r.Failure(rpc.ID{}), status
}

// admit keeps whoever asks too often from asking the PDP.
func (x *exchange) admit() (release func(), refused *ask.Refusal) {
	name := ""
	if x.request.Method == "tools/call" {
		name = x.params.GetString("name")
	}
	release, after, ok := x.g.o.Rates.Admit(x.who.Key, name)
	if !ok {
		return nil, limited(after)
	}
	return sync.OnceFunc(release), nil
}

// find finds the tool that is called.
func (x *exchange) find(ctx context.Context) *ask.Refusal {
	name := x.params.GetString("name")
	if len(x.params.Get("arguments")) > x.g.o.Most.Arguments {
		return invalid("the arguments are larger than " + strconv.Itoa(x.g.o.Most.Arguments) + " bytes")
	}
	listed, err := x.tools(ctx)
	if err != nil { // what the server says of it is for nobody yet: nothing is decided
		return silent(err)
	}
	if x.tool = listed.byName[name]; x.tool == nil {
		return ask.UnknownTool()
	}
	return nil
}

// mirrored is what is wrong with the headers that mirror arguments, nil if they agree with them.
func (x *exchange) mirrored() *rpc.Error {
	if x.client.era != era.Modern || x.tool == nil {
		return nil
	}
	return era.CheckParamHeaders(x.header, x.tool.headers, x.params.Get("arguments"))
}

// ask has the PDP decide, with what people have said before, if they have. Its permit is for one time that something is sent.
func (x *exchange) ask(ctx context.Context, answered ask.Answered) *ask.Refusal {
	op := x.operation()
	op.Answered = answered
	if x.permit != nil {
		x.permit.Done(context.WithoutCancel(ctx))
	}
	var refused *ask.Refusal
	begun := x.g.o.Now()
	x.permit, refused = x.g.o.Asker.Ask(ctx, op)
	since(ctx, x.g.o.Meters.pdp, begun, x.g.o.Now())
	x.g.health.asked(refused)
	if refused == nil && !x.permit.Passes(rpc.Message{Method: "notifications/message"}) {
		if x.link == nil {
			x.reach.silence()
		} else {
			x.link.silence()
		}
	}
	return refused
}

func (x *exchange) operation() ask.Operation {
	op := ask.Operation{Principal: x.who, Era: x.client.era, Method: x.request.Method, Params: x.params}
	if x.link != nil {
		op.Server = x.link.server.Name
	}
	if x.tool != nil {
		op.Tool = x.tool.Tool
	}
	return op
}

// call sends the request on, and relays what comes for it. What is sent again, with answers that the server has asked
// for, is decided about again.
func (x *exchange) call(ctx context.Context) (rpc.Message, int) {
	params, held, refused := x.resumed()
	if refused != nil {
		return x.refused(refused)
	}
	params = x.own(params)
	for round := 0; ; round++ {
		response, err := x.forward(ctx, params, held)
		if err != nil {
			return x.failed(err)
		}
		asked, refused := x.inputRequired(response)
		switch {
		case refused != nil:
			return x.refused(refused)
		case asked == nil:
			return x.result(response)
		}
		if _, refused := x.permit.Result(response); refused != nil { // what it asks in words may be what is to be taken out
			return x.refused(refused)
		}
		switch {
		case x.client.era == era.Modern:
			return x.passOn(*asked)
		case round == mostRounds:
			return x.refused(ambiguous("the server asks for input again and again"))
		}
		if params, err = x.gather(ctx, *asked, params); err != nil {
			return x.refused(ambiguous(err.Error()))
		}
		if x.tool != nil { // which may have become another while the client was asked
			if refused := x.find(ctx); refused != nil {
				return x.refused(refused)
			}
		}
		if refused := x.ask(ctx, goesOn(x.permit)); refused != nil {
			return x.refused(refused)
		}
	}
}

// mostRounds is how often a server may ask for input for one request.
const mostRounds = 10

// forward sends params, or the answer that a held request waits for, and relays what comes until the response.
func (x *exchange) forward(ctx context.Context, params rpc.Object, h *held) (response rpc.Message, err error) {
	if h != nil {
		return x.goOn(ctx, h, params)
	}
	if err := x.logs(ctx); err != nil {
		return response, err
	}
	token, sent := x.progress(params)
	// The stream may be held when this request has ended. As long as it is not, it ends with it.
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	r := &relay{exchange: x, token: token, cancel: cancel}
	defer context.AfterFunc(ctx, cancel)()
	r.session, r.stream, err = x.link.send(life, x.who, func(s upstream.Session) upstream.Request {
		q := upstream.Request{Method: x.request.Method, Params: x.outgoing(life, s, sent)}
		if x.tool != nil && s.Era() == era.Modern {
			q.Headers = era.ParamHeaders(x.tool.headers, params.Get("arguments"))
		}
		return q
	})
	x.link.server.sent(err)
	if err != nil {
		cancel()
		return response, err
	}
	begun := x.g.o.Now()
	defer func() { since(ctx, x.g.o.Meters.upstream, begun, x.g.o.Now()) }()
	return r.run(ctx)
}

// result is the response as it leaves.
func (x *exchange) result(response rpc.Message) (rpc.Message, int) {
	x.outcome = outcomeAnswered
	if e, err := rpc.ReadError(response.Error); err == nil && response.Error != nil && e.Code == era.URLRequired {
		if response.Error, err = x.pages(response.Error); err != nil {
			return x.refused(ambiguous(err.Error()))
		}
	}
	leaves, refused := x.permit.Result(response)
	if refused != nil {
		return x.refused(refused)
	}
	status := http.StatusOK
	if e, err := rpc.ReadError(leaves.Error); err == nil && leaves.Error != nil && x.client.era == era.Modern {
		status = statusOf(e.Code)
	}
	return leaves, status
}

// statusOf is the status that the modern era has for an error.
func statusOf(code int) int {
	switch code {
	case rpc.MethodNotFound:
		return http.StatusNotFound
	case rpc.InvalidParams, era.UnsupportedVersion, era.MissingCapability, era.HeaderMismatch:
		return http.StatusBadRequest
	}
	return http.StatusOK
}

// failed is the response if the server does not answer, or answers with an error where the gateway wanted to know something.
func (x *exchange) failed(err error) (rpc.Message, int) {
	switch err := err.(type) {
	case refusedError:
		return x.refused(err.refusal)
	case answeredError:
		return x.result(err.response)
	}
	m, status := x.refused(unavailable(err))
	x.outcome = outcomeFailed
	var e *upstream.Error
	if errors.As(err, &e) && e.Answer != nil && x.permit != nil {
		leaves, refused := x.permit.Result(m)
		if refused != nil {
			return x.refused(refused)
		}
		return leaves, status
	}
	return m, status
}

// isChange reports whether a notification says that something is other than it was, for whoever wants to know.
func isChange(method string) bool {
	return strings.HasSuffix(method, "/list_changed") || method == resourceUpdated
}
