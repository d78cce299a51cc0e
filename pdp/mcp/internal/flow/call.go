package flow

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"go.opentelemetry.io/otel/trace"

	"policy-service/pdp/mcp/internal/answer"
	"policy-service/pdp/mcp/internal/ask"
	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/identity"
	"policy-service/pdp/mcp/internal/link"
	"policy-service/pdp/mcp/internal/people"
	"policy-service/pdp/mcp/internal/reply"
	"policy-service/pdp/mcp/internal/rpc"
	"policy-service/pdp/mcp/internal/upstream"
	"policy-service/pdp/mcp/wire"
)

// Call is a request of a client, of either era, as it came. It stays as it is. There is one way through the gateway: what the
// client wants is looked up, the PDP is asked, and only then is anything sent. What is for all of several servers goes to [each].
type Call struct {
	g       *Flow
	Who     *identity.Principal
	Client  link.Client
	Reach   *link.Reach
	Session *people.Conversation // of a client of the legacy era, nil for others
	Request rpc.Message
	Params  rpc.Object
	Header  http.Header
	Reply   reply.Reply
	holds   *holds
}

// Target is a call at what it is for.
type Target struct {
	*Call
	link *link.Link // to the server, nil if the call is for several
	tool *link.Tool
	// unsettled is set if the tool is as others were shown it: see [exchange.settle].
	unsettled bool
}

// exchange is a call with what the stages have found of it. Each stage takes it by value, and returns what it adds.
type exchange struct {
	Target
	brought *brought // nil if the client brings nothing
	fulfils *fulfils // nil if the call fulfils no request
	permit  *ask.Permit
}

// holds is what a call holds until it is over. It may be added to by several at once.
type holds struct {
	mu  sync.Mutex
	all []func()
}

// lasts has end be called when the call is over, before what was there before it.
func (h *holds) lasts(end func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, end)
}

// end gives back all, also if something panics.
func (h *holds) end() {
	h.mu.Lock()
	all := h.all
	h.all = nil // an answer that waits for its client may have the call for longer
	h.mu.Unlock()
	for _, end := range all {
		defer end()
	}
}

// Visit is a call from when it comes until it is over.
type Visit struct {
	Call
	holds holds
	x     exchange
	// approval is set if people decide about it, and requested if somebody else is to call the tool.
	approval  *people.Approval
	requested *people.Request
	span      trace.Span
	// release lets others of the principal in, nil if it was not let in itself, and lasting those that last, nil if it does not.
	release, lasting func()
}

// Visit is the visit of a call. The ends are called when it is over.
func (g *Flow) Visit(c Call, ends ...func()) *Visit {
	c.g = g
	v := &Visit{Call: c}
	v.holds.all = ends
	v.Call.holds = &v.holds
	return v
}

// Lasts has end be called when the visit is over.
func (v *Visit) Lasts(end func()) { v.holds.lasts(end) }

// Serve answers the request.
//
// Thousands may wait for people, each on a stack of its own, which is as large as what it holds. What comes before the wait is
// therefore in functions that have returned by then.
func (v *Visit) Serve(ctx context.Context) {
	defer v.over()
	ctx, end := v.begin(ctx)
	switch {
	case end != nil:
	case v.approval != nil:
		v.approval.Wait(ctx)
	case v.requested != nil:
		v.requested.Wait(ctx)
	}
	if end == nil {
		end = v.finish(ctx)
	}
	v.respond(ctx, end)
}

// over gives back what the request holds, also if something has panicked.
func (v *Visit) over() {
	defer v.holds.end()
	v.makeWay()
}

// makeWay lets others of the principal in, and gives back a place among those who wait for people.
func (v *Visit) makeWay() {
	if v.requested != nil {
		v.requested.Leave()
	}
	if v.approval != nil {
		v.approval.Leave()
	}
	if v.lasting != nil {
		v.lasting()
	}
	if v.release != nil {
		v.release()
	}
}

// begin lets the request in, and has the PDP decide about it. If people are asked, [Visit.approval] is set.
func (v *Visit) begin(ctx context.Context) (context.Context, *answer.Answer) {
	v.x = exchange{Target: Target{Call: &v.Call, link: v.Reach.Only()}}
	ctx, v.span = v.g.o.Tracer.Start(ctx, "mcp "+labelOf(v.Request.Method), trace.WithSpanKind(trace.SpanKindServer))
	ctx, leave, ok := v.g.Enter(ctx)
	if !ok {
		return ctx, v.x.failed(link.ErrClosed)
	}
	v.holds.lasts(leave)
	if v.Request.Method != "initialize" { // whose answer has a header that is known late
		v.holds.lasts(reply.KeepAlive(v.Reply))
	}
	return ctx, v.enter(ctx)
}

// enter lets the request in.
func (v *Visit) enter(ctx context.Context) (end *answer.Answer) {
	x := &v.x
	if x.Request.Method == "ping" && x.Client.Era == era.Legacy {
		return answer.Of(rpc.Answer(rpc.ID{}, jsontext.Value(`{}`)))
	}
	if refused := v.admit(); refused != nil {
		return refused
	}
	if speaksMCPx(x.Request.Method, x.Params) {
		x.Reach.MCPx.Store(true)
	}
	switch x.Request.Method {
	case rpc.Respond:
		return x.g.people.Vote(ctx, x.Who, x.Client, x.Request.Params)
	case "subscriptions/listen":
		v.release() // it lasts, and is in nobody's way
		over, ok := x.g.Lasting(x.Who.Key)
		if !ok {
			return answer.Limited("", time.Second)
		}
		v.lasting = sync.OnceFunc(over)
		return v.decide(ctx)
	}
	if x.Target, end = x.route(ctx); end != nil {
		return end
	}
	if end = x.fits(ctx); end != nil {
		return end
	}
	if x.Request.Method == wire.MethodToolRequest && x.tool != nil {
		return v.requests(ctx)
	}
	if *x, end = x.bring(); end != nil {
		return end
	}
	return v.decide(ctx)
}

// requests has the PDP decide about a request for a tool, and files it. Waiting for it is in nobody's way.
func (v *Visit) requests(ctx context.Context) *answer.Answer {
	r, end := people.ReadRequest(v.x.asCase(), v.x.Request.Params)
	if end != nil {
		return end
	}
	if end := v.decide(ctx); end != nil {
		return end
	}
	v.release()
	v.requested = r
	return r.Begin()
}

// bring reads what the client brings with the request, for people or a server that have asked before.
func (x exchange) bring() (_ exchange, refused *answer.Answer) {
	if x, refused = readFulfilment(x); refused != nil {
		return x, refused
	}
	if x.brought, refused = bring(x); refused != nil {
		return x, refused
	}
	if x.fulfils != nil && x.brought.forServer() {
		refused = answer.Invalid("a call that fulfils a request has no second round: leave inputResponses and requestState out")
	}
	return x, refused
}

// finish does what the request wants, if people have nothing against it.
func (v *Visit) finish(ctx context.Context) (end *answer.Answer) {
	if v.approval != nil {
		by, end := v.approval.Conclude(ctx)
		if end != nil {
			return end
		}
		if v.x, end = v.x.approved(ctx, by); end != nil {
			return end
		}
	}
	if v.requested != nil {
		came, end := v.requested.Conclude()
		if end != nil {
			return end
		}
		return v.x.whatCame(came)
	}
	return v.x.do(ctx)
}

// respond sends the response. What was done of what the PDP obliged to is reported once it has left.
func (v *Visit) respond(ctx context.Context, end *answer.Answer) {
	x := v.x
	v.makeWay() // whoever has an answer can ask again
	x.note(end)
	end = x.readable(end)
	response := end.Message
	if len(response.Result) > usualAnswer && !x.g.ofOne() {
		x.g.o.People.Charge(x.Who.Account(), len(response.Result)/eachOfLarge)
		if read, few := x.g.o.Rates.Hold(x.Who.Account(), LargeAnswers); few {
			defer read()
		} else {
			response = unreadResults().Message
			x.g.o.Logger.Warn("a large result is not sent: too many of its person are not read", "method", x.Request.Method, "principal", x.Who.Key)
		}
	}
	response.ID = x.Request.ID
	endStep(v.span, end.Outcome)
	x.g.o.Meters.call(ctx, x.Request.Method, end.Outcome)
	_ = x.Reply.Final(end.Status, response)
}

// note has the log, and those who listen, hear of a refusal.
func (x exchange) note(a *answer.Answer) {
	if r := a.Refusal; r != nil {
		x.g.o.Logger.Info("refused", "method", x.Request.Method, "code", r.Code, "why", r.Why, "principal", x.Who.Key)
		x.g.people.Listeners.Refused(x.Who, x.Request.Method, x.asked(), r)
	}
}

// admit keeps whoever asks too often from asking the PDP.
func (v *Visit) admit() *answer.Answer {
	x := v.x
	name := ""
	if ask.OfTool(x.Request.Method) {
		name = x.Params.GetString("name")
	}
	release, limit, after := x.g.Admit(x.Who, name, false)
	if limit == "" {
		v.release = sync.OnceFunc(release)
		return nil
	}
	refused := answer.Limited(limit, after)
	if x.Request.IsNotification() { // whose status is all that anybody sees
		refused.Status = http.StatusTooManyRequests
	}
	return refused
}

// Admit takes one more message of a principal, with a tool if there is one, until release is called. Where it may not, limit
// is the key of the limit. One that is always taken of a person is counted for them.
func (g *Flow) Admit(who *identity.Principal, tool string, always bool) (release func(), limit string, after time.Duration) {
	if after, ok := g.PersonMay(who); !ok && !always {
		return nil, "limits.rate", after
	}
	release, after, ok := g.o.Rates.Admit(who.Key, tool)
	if !ok {
		return nil, "limits.per_principal", after
	}
	return release, "", 0
}

// PersonMay counts a message of a person, and says whether one more may be taken of them, or when.
func (g *Flow) PersonMay(who *identity.Principal) (after time.Duration, ok bool) {
	if g.ofOne() {
		return 0, true
	}
	release, after, ok := g.o.People.Admit(who.Account(), "")
	release()
	return after, ok
}

// do does what the request wants, and is the response, whoever made it, and the status that it has if nothing went before it.
func (x exchange) do(ctx context.Context) *answer.Answer {
	switch x.Request.Method {
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
		return answer.New(ask.Unknown, rpc.MethodNotFound, "unknown method", "with several servers nobody knows for which of them the method is")
	}
	x, end := x.settle(ctx)
	switch {
	case end != nil:
		return end
	case x.fulfils != nil:
		return x.fulfil(ctx)
	}
	return x.call(ctx)
}

// find finds the tool that is called.
func (x exchange) find(ctx context.Context) (Target, *answer.Answer) {
	name := x.Params.GetString("name")
	if len(x.Params.Get("arguments")) > x.g.o.Arguments {
		return x.Target, answer.Invalid("the arguments are larger than " + strconv.Itoa(x.g.o.Arguments) + " bytes")
	}
	spends := x.Params.Get("requestState") != nil || x.Params.Get("inputResponses") != nil // by people's word, which is spent once
	if s, _ := x.link.Current(); s == nil && !x.g.ofOne() && !spends {
		if known := x.g.servers.KnownTool(x.link.Server, name); known != nil {
			return Target{x.Call, x.link, known, true}, nil
		}
	}
	switch err := x.mayOpen(ctx).(type) {
	case nil:
		return x.findThere(ctx)
	case *answer.Answer:
		return x.Target, err
	default:
		return x.Target, answer.Refuse(ask.UnknownTool())
	}
}

// findThere finds the tool that is called among those that the server lists for the principal.
func (x exchange) findThere(ctx context.Context) (Target, *answer.Answer) {
	listed, err := x.link.Listed(ctx, x.Who, x.Client)
	if err != nil { // what the server says of it is for nobody yet: nothing is decided
		return x.Target, answer.Silent(err)
	}
	t := listed.ByName[x.Params.GetString("name")]
	if t == nil {
		return x.Target, answer.Refuse(ask.UnknownTool())
	}
	return Target{Call: x.Call, link: x.link, tool: t}, nil
}

// fits ends a call whose headers or arguments are not those of the tool.
func (x exchange) fits(ctx context.Context) *answer.Answer {
	if x.Client.Era == era.Modern && x.tool != nil && x.Request.Method == "tools/call" {
		if fault := era.CheckParamHeaders(x.Header, x.tool.Headers, x.Params.Get("arguments")); fault != nil {
			return &answer.Answer{Message: rpc.Failure(rpc.ID{}, *fault), Status: http.StatusBadRequest, Outcome: answer.Unusable}
		}
	}
	return x.misfit(ctx)
}

// ask has the PDP decide, with what people have said before, if they have. Its permit is for one time that something is sent.
func (x exchange) ask(ctx context.Context, answered ask.Answered) (exchange, *answer.Answer) {
	op := x.operation()
	op.Answered = answered
	if x.permit != nil {
		x.permit.Done(context.WithoutCancel(ctx))
	}
	var refused *ask.Refusal
	begun := x.g.o.Now()
	if x.permit, refused = x.g.o.Asker.Ask(ctx, op); refused == nil { // what was done of what it owes is reported, also if something panics
		permit := x.permit
		x.holds.lasts(func() { permit.Done(context.WithoutCancel(ctx)) })
	}
	since(ctx, x.g.o.Meters.pdp, begun, x.g.o.Now())
	x.g.o.Asker.Note(refused)
	if refused == nil && !x.permit.Passes() {
		if x.link == nil {
			x.Reach.Silence()
		} else {
			x.link.Silence()
		}
	}
	return x, answer.Refuse(refused)
}

// asked is the tool of the call as the PDP is asked about it, nil if there is none.
func (x Target) asked() *ask.Tool {
	if x.tool == nil {
		return nil
	}
	return x.tool.Tool
}

func (x exchange) operation() ask.Operation {
	op := ask.Operation{Principal: x.Who, Era: x.Client.Era, Method: x.Request.Method, Params: x.Params, MCPx: x.Reach.MCPx.Load()}
	if x.link != nil {
		op.Server = x.link.Server.Name
	}
	op.Tool = x.asked()
	if x.fulfils != nil {
		op.Requester = x.fulfils.entry.Asked.Who
	}
	return op
}

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
	defer func() { since(ctx, x.g.o.Meters.upstream, begun, x.g.o.Now()) }()
	return r.run(ctx)
}

// result is the response as it leaves.
func (x exchange) result(response rpc.Message) *answer.Answer {
	if e, err := rpc.ReadError(response.Error); err == nil && response.Error != nil && e.Code == era.URLRequired {
		var refused *answer.Answer
		if response.Error, refused = x.pages(response.Error); refused != nil {
			return refused
		}
	}
	leaves, withheld := x.permit.Result(response)
	if withheld != nil {
		return answer.Refuse(withheld)
	}
	a := answer.Of(leaves)
	if e, err := rpc.ReadError(leaves.Error); err == nil && leaves.Error != nil && x.Client.Era == era.Modern {
		a.Status = answer.StatusOf(e.Code)
	}
	return a
}

// failed is the response if the server does not answer, or answers with an error where the gateway wanted to know something.
func (x exchange) failed(err error) *answer.Answer {
	if a, ok := err.(*answer.Answer); ok {
		if a.Refusal == nil {
			return x.result(a.Message)
		}
		return a
	}
	a := answer.Unavailable(err)
	a.Outcome = answer.Failed
	var e *upstream.Error
	if errors.As(err, &e) && e.Answer != nil && x.permit != nil {
		var withheld *ask.Refusal
		if a.Message, withheld = x.permit.Result(a.Message); withheld != nil {
			return answer.Refuse(withheld)
		}
	}
	return a
}
