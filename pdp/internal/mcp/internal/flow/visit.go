package flow

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"go.opentelemetry.io/otel/trace"

	"policy-service/pdp/internal/logging"
	"policy-service/pdp/internal/mcp/internal/answer"
	"policy-service/pdp/internal/mcp/internal/ask"
	"policy-service/pdp/internal/mcp/internal/era"
	"policy-service/pdp/internal/mcp/internal/link"
	"policy-service/pdp/internal/mcp/internal/meters"
	"policy-service/pdp/internal/mcp/internal/people"
	"policy-service/pdp/internal/mcp/internal/reply"
	"policy-service/pdp/internal/rpc"
	"policy-service/pdp/mcp/wire"
)

// Visit is a call from its arrival to its end.
type Visit struct {
	Call
	cleanups cleanups
	x        exchange
	// approval is set if people decide about the call. requested is set if it asks for another participant to call the tool.
	approval  *people.Approval
	requested *people.Request
	span      trace.Span
	begun     time.Time
	// release frees the place of the request among those of its principal that are under way.
	release func()
	// places free all places that the request has taken. Each may be freed twice.
	places []func()
}

// Visit begins the visit of a call. The ends are called at its end.
func (g *Flow) Visit(c Call, ends ...func()) *Visit {
	c.g = g
	v := &Visit{Call: c, begun: g.o.Now()}
	v.cleanups.all = ends
	v.Call.cleanups = &v.cleanups
	return v
}

// Serve answers the request.
//
// Thousands of requests may wait for people, each on its own stack, which keeps the size that it once needed. The work before
// the wait is therefore in functions that have returned by then.
func (v *Visit) Serve(ctx context.Context) {
	defer v.close()
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

// close frees all that the request holds, also after a panic.
func (v *Visit) close() {
	defer v.cleanups.run()
	v.releasePlaces()
}

// releasePlaces frees the places of the request: among those of its principal, and among those that wait for people.
func (v *Visit) releasePlaces() {
	for _, free := range slices.Backward(v.places) {
		free()
	}
}

// begin admits the request, and lets the PDP decide about it. It sets [Visit.approval] if people are asked, and
// [Visit.requested] if the call is a request for a tool.
func (v *Visit) begin(ctx context.Context) (context.Context, *answer.Answer) {
	v.x = exchange{Target: Target{Call: &v.Call, link: v.Reach.Only()}}
	ctx, v.span = v.g.o.Tracer.Start(ctx, "mcp "+meters.LabelOf(v.Request.Method), trace.WithSpanKind(trace.SpanKindServer))
	ctx, leave, ok := v.g.doors.Enter(v.g.billed(ctx, v.Who))
	if !ok {
		return ctx, v.x.failed(link.ErrClosed)
	}
	v.cleanups.add(leave)
	if v.Request.Method != "initialize" { // the answer to initialize has a header that is known late
		v.cleanups.add(reply.KeepAlive(v.Reply))
	}
	return ctx, v.enter(ctx)
}

// enter admits the request, finds its target, and lets the PDP decide.
func (v *Visit) enter(ctx context.Context) (end *answer.Answer) {
	x := &v.x
	if x.Request.Method == "ping" && x.Client.Era == era.Legacy {
		return answer.Of(rpc.Answer(rpc.ID{}, jsontext.Value(`{}`)))
	}
	if refused := v.admit(); refused != nil {
		return refused
	}
	if m := x.Request.Method; m == wire.MethodToolRequest || m == rpc.Respond || m == "subscriptions/listen" && wantsAuthorizations(x.Params) {
		x.Reach.MCPx.Store(true) // the message is of an extension of ours
	}
	if *x, end = x.takeShown(); end != nil {
		return end
	}
	switch x.Request.Method {
	case rpc.Respond:
		return x.g.people.Vote(ctx, x.Who, x.Client, x.Request.Params)
	case "subscriptions/listen":
		v.release() // a stream lasts, and must not block other requests
		over, ok := x.g.o.Rates.Hold(x.Who.Account(), Streams)
		if !ok {
			return answer.Limited("", time.Second)
		}
		v.places = append(v.places, sync.OnceFunc(over))
		return v.decide(ctx)
	}
	if wire.IsCapability(x.Request.Method) {
		if end, there := x.capability(ctx); there {
			return end
		}
	}
	if x.Target, end = x.route(ctx); end != nil {
		return end
	}
	if x.unconfirmed && x.checkHeaders() != nil { // the server may show this principal a tool with other headers
		*x, end = x.findShown(ctx)
	} else {
		end = x.checkFit(ctx)
	}
	if end != nil {
		return end
	}
	if x.Request.Method == wire.MethodToolRequest && x.tool != nil {
		return v.requestTool(ctx)
	}
	if *x, end = x.read(ctx); end != nil {
		return end
	}
	return v.decide(ctx)
}

// requestTool lets the PDP decide about a request for a tool, and files it. While it waits it takes no place of other requests.
func (v *Visit) requestTool(ctx context.Context) *answer.Answer {
	r, end := people.ReadRequest(v.x.peopleCase(), v.x.Request.Params)
	if end != nil {
		return end
	}
	if end := v.decide(ctx); end != nil {
		return end
	}
	if v.x, end = v.x.confirm(ctx); end != nil {
		return end
	}
	v.release()
	v.requested = r
	v.places = append(v.places, func() { r.Leave() }) // Begin makes it
	return r.Begin(v.x.peopleCase())
}

func (v *Visit) finish(ctx context.Context) (end *answer.Answer) {
	if v.approval != nil {
		if end := v.afterApproval(ctx); end != nil {
			return end
		}
	}
	if v.requested != nil {
		came, end := v.requested.Conclude()
		if end != nil {
			return end
		}
		return v.x.requestedAnswer(came)
	}
	if x := v.x; x.Request.Method == "tools/call" && x.g.servers.LetsPass(x.tool) {
		x.g.o.Meters.LetPass("lock")
		x.g.o.Logger.Warn("a tool is called that is not as it is locked: lock.mode is warn", slog.Group("", "tool", x.toolName(), "tenant", x.Who.Tenant), "principal", x.Who.Key)
	}
	return v.x.do(ctx)
}

// respond sends the response. The outcome of the PDP's obligations is reported once the response has left.
func (v *Visit) respond(ctx context.Context, end *answer.Answer) {
	x := v.x
	v.releasePlaces() // the client may send the next request once it has the response
	x.noteRefusal(end)
	end = x.readable(end)
	response := end.Message
	if len(response.Result) > usualAnswer && !x.g.onePerson() {
		x.g.o.People.Charge(x.Who.Account(), len(response.Result)/eachOfLarge)
		if read, few := x.g.o.Rates.Hold(x.Who.Account(), LargeAnswers); few {
			defer read()
		} else {
			const message = "the server did what it was asked, and its result is not kept: too many large results of this person are not read; read those first, and call again only if it may be done twice"
			response = answer.New(answer.ResultNotKept, rpc.InternalError, message, message).Message
			x.g.o.Logger.Warn("a large result is not sent: too many of its person are not read", slog.Group("", "method", x.Request.Method), "principal", x.Who.Key)
		}
	}
	response.ID = x.Request.ID
	meters.EndStep(v.span, end.Outcome)
	x.g.o.Meters.Call(ctx, x.Request.Method, end.Outcome)
	if x.g.o.Logger.Enabled(ctx, logging.Access) {
		x.g.o.Logger.Log(ctx, logging.Access, "request", "method", meters.LabelOf(x.Request.Method), "tool", x.toolName(), "outcome", string(end.Outcome), "status", end.Status,
			"seconds", x.g.o.Now().Sub(v.begun).Seconds(), "bytes", len(response.Result), "tenant", x.Who.Tenant, "principal", x.Who.Key)
	}
	_ = x.Reply.Final(end.Status, response)
}

// admit refuses a request of a principal that asks too often, before the PDP is asked.
func (v *Visit) admit() *answer.Answer {
	x := v.x
	name := ""
	if ask.OfTool(x.Request.Method) {
		name = x.Params.GetString("name")
	}
	release, limit, after := x.g.Admit(x.Who, name, false)
	if limit == "" {
		v.release = sync.OnceFunc(release)
		v.places = append(v.places, v.release)
		return nil
	}
	refused := answer.Limited(limit, after)
	if x.Request.IsNotification() { // a notification's sender sees only the status
		refused.Status = http.StatusTooManyRequests
	}
	return refused
}

// do does the work of the request, and returns the response, of a server or of the gateway, with the status that it has if no
// message went before it.
func (x exchange) do(ctx context.Context) *answer.Answer {
	switch x.Request.Method {
	case "initialize", "server/discover":
		return x.introduce(ctx)
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
	if x.link == nil { // a method that the operator has a mapping for
		return answer.New(ask.Unknown, rpc.MethodNotFound, "unknown method", "with several servers nobody knows for which of them the method is")
	}
	x, end := x.confirm(ctx)
	switch {
	case end != nil:
		return end
	case x.fulfils != nil:
		return x.fulfil(ctx)
	}
	return x.call(ctx)
}

// decide lets the PDP decide about a request, and then people, if the PDP says that they can: then [Visit.approval] is set. A
// call that waits for people takes no place of other requests.
func (v *Visit) decide(ctx context.Context) (refused *answer.Answer) {
	if v.x.followUp.people != nil { // people were asked before
		return v.approve(ctx, nil)
	}
	v.x, refused = v.x.decideKnown(ctx, ask.Answered{Continues: v.x.followUp.state.Continues})
	// People decide about whole calls of a tool, not about continued ones.
	if refused == nil || refused.Refusal.Wanted == nil || v.x.tool == nil || v.x.followUp.server {
		return refused
	}
	return v.approve(ctx, refused.Refusal.Wanted)
}

// approve lets people decide about the call. Wanted is the question for them. It is nil if an earlier request has asked them
// already.
func (v *Visit) approve(ctx context.Context, wanted *ask.Wanted) *answer.Answer {
	a, refused := people.NewApproval(v.x.peopleCase(), wanted)
	if refused != nil {
		return refused
	}
	v.release()
	v.approval = a
	v.places = append(v.places, a.Leave)
	if wanted == nil {
		return a.Again(ctx, v.x.followUp.people)
	}
	return a.Begin(ctx)
}

// peopleCase is the call in the form in which people are asked about it.
func (x exchange) peopleCase() people.Case {
	return people.Case{
		People: x.g.people, Who: x.Who, Client: x.Client, Session: x.Session, Reply: x.Reply, Method: x.Request.Method, Params: x.Params,
		Tool: x.policyTool(), LooksLikeAnother: func() bool { return x.listing.LooksLikeAnother(x.tool) }, Operation: x.operation, Binding: x.binding, Shows: x.shown, Answers: x.followUp.answers,
	}
}

// afterApproval ends the wait for people, and lets the PDP decide again about a call that they have approved. It frees the place
// of the call once the call has used its approval.
func (v *Visit) afterApproval(ctx context.Context) *answer.Answer {
	defer v.approval.Leave()
	by, end := v.approval.Conclude(ctx)
	if end != nil {
		return end
	}
	now, end := v.x.findOpened(ctx) // the tool may have changed while people decided, and the approval is spent once it is used
	switch {
	case end != nil:
		return end
	case now.tool.Digest != v.x.tool.Digest: // the approval stays valid for the tool as it was
		return answer.Invalid("the tool is not the one that people were asked about any more; send the call again")
	}
	v.x.Target = now
	v.x, end = v.x.ask(ctx, by)
	return end
}
