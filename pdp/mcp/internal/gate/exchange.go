package gate

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"go.opentelemetry.io/otel/trace"

	"policy-service/pdp/mcp/internal/ask"
	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/identity"
	"policy-service/pdp/mcp/internal/reply"
	"policy-service/pdp/mcp/internal/rpc"
	"policy-service/pdp/mcp/internal/upstream"
	"policy-service/pdp/mcp/wire"
)

// Call is a request of a client, of either era, as it came. It stays as it is. There is one way through the gateway: what the
// client wants is looked up, the PDP is asked, and only then is anything sent. What is for all of several servers goes to [each].
type Call struct {
	g       *Gateway
	who     *identity.Principal
	client  client
	reach   *reach
	session *session // of a client of the legacy era, nil for others
	request rpc.Message
	params  rpc.Object
	header  http.Header
	reply   reply.Reply
	holds   *holds
}

// Target is a call at what it is for.
type Target struct {
	*Call
	link *link // to the server, nil if the call is for several
	tool *tool
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

// visit is a call from when it comes until it is over.
type visit struct {
	Call
	holds holds
	x     exchange
	// waiting is set if people decide about it, or somebody else is to call the tool.
	waiting waiting
	span    trace.Span
	// release lets others of the principal in, nil if it was not let in itself, and lasting those that last, nil if it does not.
	release, lasting func()
}

// waiting is a call that waits for people.
type waiting interface {
	// wait waits as long as a call may be held.
	wait(context.Context)
	// conclude is how the call goes on, or how it ends.
	conclude(context.Context) (exchange, *Answer)
	// leave gives back a place among those who wait.
	leave()
}

// newVisit is the visit of a call.
func newVisit(c Call, ends ...func()) *visit {
	v := &visit{Call: c}
	v.holds.all = ends
	v.Call.holds = &v.holds
	return v
}

// serve answers the request.
//
// Thousands may wait for people, each on a stack of its own, which is as large as what it holds. What comes before the wait is
// therefore in functions that have returned by then.
func (v *visit) serve(ctx context.Context) {
	defer v.over()
	ctx, end := v.begin(ctx)
	if end == nil && v.waiting != nil {
		v.waiting.wait(ctx)
	}
	if end == nil {
		end = v.finish(ctx)
	}
	v.respond(ctx, end)
}

// over gives back what the request holds, also if something has panicked.
func (v *visit) over() {
	defer v.holds.end()
	v.makeWay()
}

// makeWay lets others of the principal in, and gives back a place among those who wait for people.
func (v *visit) makeWay() {
	if v.waiting != nil {
		v.waiting.leave()
	}
	if v.lasting != nil {
		v.lasting()
	}
	if v.release != nil {
		v.release()
	}
}

// begin lets the request in, and has the PDP decide about it. If people are asked, [visit.waiting] is set.
func (v *visit) begin(ctx context.Context) (context.Context, *Answer) {
	v.x = exchange{Target: Target{Call: &v.Call, link: v.reach.only()}}
	ctx, v.span = v.g.o.Tracer.Start(ctx, "mcp "+labelOf(v.request.Method), trace.WithSpanKind(trace.SpanKindServer))
	ctx, leave, ok := v.g.enter(ctx)
	if !ok {
		return ctx, v.x.failed(errLinkClosed)
	}
	v.holds.lasts(leave)
	if v.request.Method != "initialize" { // whose answer has a header that is known late
		v.holds.lasts(reply.KeepAlive(v.reply))
	}
	return ctx, v.enter(ctx)
}

// enter lets the request in.
func (v *visit) enter(ctx context.Context) (end *Answer) {
	x := &v.x
	if x.request.Method == "ping" && x.client.era == era.Legacy {
		return answered(rpc.Answer(rpc.ID{}, jsontext.Value(`{}`)))
	}
	if refused := v.admit(); refused != nil {
		return refused
	}
	if speaksMCPx(x.request.Method, x.params) {
		x.reach.mcpx.Store(true)
	}
	switch x.request.Method {
	case rpc.Respond:
		return x.vote(ctx)
	case "subscriptions/listen":
		v.release() // it lasts, and is in nobody's way
		over, ok := x.g.lasting(x.who.Key)
		if !ok {
			return limited(time.Second)
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
	if x.request.Method == wire.MethodToolRequest && x.tool != nil {
		return v.requests(ctx)
	}
	if *x, end = x.bring(); end != nil {
		return end
	}
	return v.decide(ctx)
}

// requests has the PDP decide about a request for a tool, and files it. Waiting for it is in nobody's way.
func (v *visit) requests(ctx context.Context) *Answer {
	r, end := readRequest(v.x)
	if end != nil {
		return end
	}
	if end := v.decide(ctx); end != nil {
		return end
	}
	v.release()
	r.x, r.approval, v.waiting = v.x, v.waiting, r
	return r.begin()
}

// bring reads what the client brings with the request, for people or a server that have asked before.
func (x exchange) bring() (_ exchange, refused *Answer) {
	if x, refused = readFulfilment(x); refused != nil {
		return x, refused
	}
	if x.brought, refused = bring(x); refused != nil {
		return x, refused
	}
	if x.fulfils != nil && x.brought.forServer() {
		refused = invalid("a call that fulfils a request has no second round: leave inputResponses and requestState out")
	}
	return x, refused
}

// finish does what the request wants, if people have nothing against it.
func (v *visit) finish(ctx context.Context) (end *Answer) {
	if v.waiting != nil {
		if v.x, end = v.waiting.conclude(ctx); end != nil {
			return end
		}
	}
	return v.x.do(ctx)
}

// respond sends the response. What was done of what the PDP obliged to is reported once it has left.
func (v *visit) respond(ctx context.Context, end *Answer) {
	x := v.x
	v.makeWay() // whoever has an answer can ask again
	x.note(end)
	end = x.readable(end)
	response := end.Message
	if len(response.Result) > usualAnswer && !x.g.ofOne() {
		x.g.o.People.Charge(personOf(x.who), len(response.Result)/eachOfLarge)
		if read, few := x.g.o.Rates.Hold(personOf(x.who), LargeAnswers); few {
			defer read()
		} else {
			response = unreadResults().Message
			x.g.o.Logger.Warn("a large result is not sent: too many of its person are not read", "method", x.request.Method, "principal", x.who.Key)
		}
	}
	response.ID = x.request.ID
	endStep(v.span, end.Outcome)
	x.g.o.Meters.call(ctx, x.request.Method, end.Outcome)
	_ = x.reply.Final(end.Status, response)
}

// note has the log, and those who listen, hear of a refusal.
func (x exchange) note(a *Answer) {
	if r := a.refusal; r != nil {
		x.g.o.Logger.Info("refused", "method", x.request.Method, "code", r.Code, "why", r.Why, "principal", x.who.Key)
		x.g.listeners.refused(x, r)
	}
}

// admit keeps whoever asks too often from asking the PDP.
func (v *visit) admit() *Answer {
	x := v.x
	name := ""
	if ask.OfTool(x.request.Method) {
		name = x.params.GetString("name")
	}
	release, limit, after := x.g.admit(x.who, name, false)
	if limit == "" {
		v.release = sync.OnceFunc(release)
		return nil
	}
	refused := limitedBy(limit, after)
	if x.request.IsNotification() { // whose status is all that anybody sees
		refused.Status = http.StatusTooManyRequests
	}
	return refused
}

// admit takes one more message of a principal, with a tool if there is one, until release is called. Where it may not, limit
// is the key of the limit. One that is always taken of a person is counted for them.
func (g *Gateway) admit(who principal, tool string, always bool) (release func(), limit string, after time.Duration) {
	if after, ok := g.personMay(who); !ok && !always {
		return nil, "limits.rate", after
	}
	release, after, ok := g.o.Rates.Admit(who.Key, tool)
	if !ok {
		return nil, "limits.per_principal", after
	}
	return release, "", 0
}

// personOf is by whom shares are counted: the person, by all clients, or a client without one.
func personOf(who principal) string { return cmp.Or(who.Person, who.Key) }

// personMay counts a message of a person, and says whether one more may be taken of them, or when.
func (g *Gateway) personMay(who *identity.Principal) (after time.Duration, ok bool) {
	if g.ofOne() {
		return 0, true
	}
	release, after, ok := g.o.People.Admit(personOf(who), "")
	release()
	return after, ok
}

// do does what the request wants, and is the response, whoever made it, and the status that it has if nothing went before it.
func (x exchange) do(ctx context.Context) *Answer {
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
		return refusal(ask.Unknown, rpc.MethodNotFound, "unknown method", "with several servers nobody knows for which of them the method is")
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
func (x exchange) find(ctx context.Context) (Target, *Answer) {
	name := x.params.GetString("name")
	if len(x.params.Get("arguments")) > x.g.o.Most.Arguments {
		return x.Target, invalid("the arguments are larger than " + strconv.Itoa(x.g.o.Most.Arguments) + " bytes")
	}
	spends := x.params.Get("requestState") != nil || x.params.Get("inputResponses") != nil // by people's word, which is spent once
	if s, _ := x.link.current(); s == nil && !x.g.ofOne() && !spends {
		if known := x.g.knownTool(x.link.server, name); known != nil {
			return Target{x.Call, x.link, known, true}, nil
		}
	}
	switch err := x.mayOpen(ctx).(type) {
	case nil:
		return x.findThere(ctx)
	case *Answer:
		return x.Target, err
	default:
		return x.Target, refuse(ask.UnknownTool())
	}
}

// findThere finds the tool that is called among those that the server lists for the principal.
func (x exchange) findThere(ctx context.Context) (Target, *Answer) {
	listed, err := x.tools(ctx)
	if err != nil { // what the server says of it is for nobody yet: nothing is decided
		return x.Target, silent(err)
	}
	t := listed.byName[x.params.GetString("name")]
	if t == nil {
		return x.Target, refuse(ask.UnknownTool())
	}
	return Target{Call: x.Call, link: x.link, tool: t}, nil
}

// fits ends a call whose headers or arguments are not those of the tool.
func (x exchange) fits(ctx context.Context) *Answer {
	if x.client.era == era.Modern && x.tool != nil && x.request.Method == "tools/call" {
		if fault := era.CheckParamHeaders(x.header, x.tool.headers, x.params.Get("arguments")); fault != nil {
			return &Answer{Message: rpc.Failure(rpc.ID{}, *fault), Status: http.StatusBadRequest, Outcome: outcomeInvalid}
		}
	}
	return x.misfit(ctx)
}

// ask has the PDP decide, with what people have said before, if they have. Its permit is for one time that something is sent.
func (x exchange) ask(ctx context.Context, answered ask.Answered) (exchange, *Answer) {
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
	x.g.health.asked(refused)
	if refused == nil && !x.permit.Passes() {
		if x.link == nil {
			x.reach.silence()
		} else {
			x.link.silence()
		}
	}
	return x, refuse(refused)
}

func (x exchange) operation() ask.Operation {
	op := ask.Operation{Principal: x.who, Era: x.client.era, Method: x.request.Method, Params: x.params, MCPx: x.reach.mcpx.Load()}
	if x.link != nil {
		op.Server = x.link.server.Name
	}
	if x.tool != nil {
		op.Tool = x.tool.Tool
	}
	if x.fulfils != nil {
		op.Requester = x.fulfils.entry.Asked.who
	}
	return op
}

// call sends the request on, and relays what comes for it. What is sent again, with answers that the server has asked
// for, is decided about again.
func (x exchange) call(ctx context.Context) *Answer {
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
			return refuse(withheld)
		}
		if response.waits { // it is our own, and was asked while there was a round
			return answered(response.Message)
		}
		if refused := x.noRound(); refused != nil {
			return refused
		}
		switch {
		case x.client.era == era.Modern:
			return x.passOn(*asked)
		case round == mostRounds:
			return ambiguous("the server asks for input again and again")
		}
		if params, err = x.gather(ctx, *asked, params); err != nil {
			return ambiguous(err.Error())
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
	send := x.link.send
	if x.fulfils != nil {
		send = x.link.sendOnce
	}
	r.session, r.stream, err = send(life, x.who, func(s upstream.Session) upstream.Request {
		q := upstream.Request{Method: x.request.Method, Params: x.outgoing(life, s, sent)}
		if x.tool != nil && s.Era() == era.Modern {
			q.Headers = era.ParamHeaders(x.tool.headers, params.Get("arguments"))
		}
		return q
	})
	x.link.server.sent(err)
	if err != nil {
		cancel()
		return relayed{permit: x.permit}, err
	}
	begun := x.g.o.Now()
	defer func() { since(ctx, x.g.o.Meters.upstream, begun, x.g.o.Now()) }()
	return r.run(ctx)
}

// result is the response as it leaves.
func (x exchange) result(response rpc.Message) *Answer {
	if e, err := rpc.ReadError(response.Error); err == nil && response.Error != nil && e.Code == era.URLRequired {
		var refused *Answer
		if response.Error, refused = x.pages(response.Error); refused != nil {
			return refused
		}
	}
	leaves, withheld := x.permit.Result(response)
	if withheld != nil {
		return refuse(withheld)
	}
	a := answered(leaves)
	if e, err := rpc.ReadError(leaves.Error); err == nil && leaves.Error != nil && x.client.era == era.Modern {
		a.Status = statusOf(e.Code)
	}
	return a
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
func (x exchange) failed(err error) *Answer {
	if a, ok := err.(*Answer); ok {
		if a.refusal == nil {
			return x.result(a.Message)
		}
		return a
	}
	a := unavailable(err)
	a.Outcome = outcomeFailed
	var e *upstream.Error
	if errors.As(err, &e) && e.Answer != nil && x.permit != nil {
		var withheld *ask.Refusal
		if a.Message, withheld = x.permit.Result(a.Message); withheld != nil {
			return refuse(withheld)
		}
	}
	return a
}

// isChange reports whether a notification says that something is other than it was, for whoever wants to know.
func isChange(method string) bool {
	switch method {
	case toolsChanged, promptsChanged, resourcesChanged, resourceUpdated:
		return true
	}
	return false
}
