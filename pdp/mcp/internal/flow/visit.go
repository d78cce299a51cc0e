package flow

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"go.opentelemetry.io/otel/trace"

	"policy-service/pdp/mcp/internal/answer"
	"policy-service/pdp/mcp/internal/ask"
	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/link"
	"policy-service/pdp/mcp/internal/meters"
	"policy-service/pdp/mcp/internal/people"
	"policy-service/pdp/mcp/internal/reply"
	"policy-service/pdp/mcp/internal/rpc"
	"policy-service/pdp/mcp/wire"
)

// Visit is a call from when it comes until it is over.
type Visit struct {
	Call
	holds holds
	x     exchange
	// approval is set if people decide about it, and requested if somebody else is to call the tool.
	approval  *people.Approval
	requested *people.Request
	span      trace.Span
	// release gives back the place of the request among those of its principal under way; nil if it took none. Lasting gives
	// back the place of a stream; nil if the request is no stream.
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

// begin lets the request in, and has the PDP decide about it. It sets [Visit.approval] if people are asked, and
// [Visit.requested] if the call is a request for a tool.
func (v *Visit) begin(ctx context.Context) (context.Context, *answer.Answer) {
	v.x = exchange{Target: Target{Call: &v.Call, link: v.Reach.Only()}}
	ctx, v.span = v.g.o.Tracer.Start(ctx, "mcp "+meters.LabelOf(v.Request.Method), trace.WithSpanKind(trace.SpanKindServer))
	ctx, leave, ok := v.g.doors.Enter(ctx)
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
	return r.Begin(v.x.asCase())
}

// finish does what the request wants, if people have nothing against it.
func (v *Visit) finish(ctx context.Context) (end *answer.Answer) {
	if v.approval != nil {
		if end := v.approved(ctx); end != nil {
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
	meters.EndStep(v.span, end.Outcome)
	x.g.o.Meters.Call(ctx, x.Request.Method, end.Outcome)
	_ = x.Reply.Final(end.Status, response)
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

// unreadResults is in place of a result for which there is no room. The server did what it was asked.
func unreadResults() *answer.Answer {
	const message = "the server did what it was asked, and its result is not kept: too many large results of this person are not read; read those first, and call again only if it may be done twice"
	return answer.New(answer.ResultNotKept, rpc.InternalError, message, message)
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

// decide has the PDP decide about a request, and people if it says that they can: [Visit.approval] is set then. A call that waits
// for them is in nobody's way.
func (v *Visit) decide(ctx context.Context) (refused *answer.Answer) {
	if v.x.brought != nil && v.x.brought.people != nil { // people were asked before
		return v.approve(ctx, nil)
	}
	v.x, refused = v.x.decideKnown(ctx, v.x.brought.answered())
	if refused == nil || refused.Refusal.Wanted == nil || v.x.tool == nil || v.x.brought.forServer() { // people are asked about a whole call of a tool, and not about what goes on
		return refused
	}
	return v.approve(ctx, refused.Refusal.Wanted)
}

// approve has people decide about the call. Wanted is what to ask them; it is nil if an earlier request has asked them already.
func (v *Visit) approve(ctx context.Context, wanted *ask.Wanted) *answer.Answer {
	a, refused := people.NewApproval(v.x.asCase(), wanted)
	if refused != nil {
		return refused
	}
	v.release()
	v.approval = a
	if wanted == nil {
		return a.Again(ctx, v.x.brought.people)
	}
	return a.Begin(ctx)
}

// asCase is the call as people are asked about it.
func (x exchange) asCase() people.Case {
	c := people.Case{
		People: x.g.people, Who: x.Who, Client: x.Client, Session: x.Session, Reply: x.Reply, Method: x.Request.Method, Params: x.Params,
		Tool: x.asked(), Operation: x.operation(), Binding: x.binding,
	}
	if x.brought != nil {
		c.Answers = x.brought.answers
	}
	return c
}

// approved ends the wait for people. It gives back the place of the call once the call has used what people have approved.
func (v *Visit) approved(ctx context.Context) *answer.Answer {
	defer v.approval.Leave()
	by, end := v.approval.Conclude(ctx)
	if end != nil {
		return end
	}
	v.x, end = v.x.approved(ctx, by)
	return end
}

// approved has the PDP decide again about a call that people have approved.
func (x exchange) approved(ctx context.Context, by ask.Answered) (exchange, *answer.Answer) {
	now, refused := x.find(ctx) // while people were waited for the tool may have become another
	switch {
	case refused != nil:
		return x, refused
	case now.tool.Digest != x.tool.Digest: // what they have approved stays good for the tool as it was
		return x, answer.Invalid("the tool is not the one that people were asked about any more; send the call again")
	}
	x.Target = now
	return x.ask(ctx, by)
}
