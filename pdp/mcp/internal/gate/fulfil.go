package gate

import (
	"bytes"
	"context"

	"policy-service/evaluation"
	"policy-service/pdp/mcp/internal/ask"
	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/identity"
	"policy-service/pdp/mcp/internal/rpc"
	"policy-service/pdp/mcp/wire"
)

// A call may fulfil what somebody else has requested. It is made once, exactly as it was requested, and both get what came of it,
// each as far as the PDP lets them. Whatever is refused before it is claimed leaves the request as it is; from then on it is over,
// whatever happens: nobody knows whether a call that was sent was made.

// fulfilment is such a call.
type fulfilment struct {
	x     *exchange
	id    string
	entry *entry
}

// readFulfilment reads what a call says of a request that it fulfils, nil if it says nothing of one.
func readFulfilment(x *exchange) (*fulfilment, *Answer) {
	if x.request.Method != "tools/call" || x.tool == nil {
		return nil, nil
	}
	said, given, err := wire.ReadFulfilment(x.params.Get, x.params.GetObject("_meta").Get)
	switch {
	case err != nil:
		return nil, invalid("what the call says of the request that it fulfils cannot be read: " + err.Error())
	case !given:
		return nil, nil
	}
	f := &fulfilment{x: x, id: said.RequestID}
	var refused *Answer
	if f.entry, refused = findRequest(x, said.RequestID); refused != nil {
		return nil, refused
	}
	if refused := f.fits(said.OnBehalfOf); refused != nil {
		return nil, refused
	}
	// Of what means the same the tool gets what was requested, byte for byte.
	if arguments := f.entry.Asked.params.Get("arguments"); arguments != nil {
		x.params = x.params.With("arguments", arguments)
	} else {
		x.params = x.params.Without(func(name string) bool { return name == "arguments" })
	}
	return f, nil
}

// fits refuses a call that is not the one that is requested.
func (f *fulfilment) fits(requester string) *Answer {
	x, q := f.x, &f.entry.Asked
	switch {
	case requester != participant(q.who).ID:
		return invalid("onBehalfOf names somebody else than who has made the request of that id")
	case isOwn(x.who, q.who):
		return f.blocked("nobody fulfils a request of their own")
	case !q.isFor(x.tool):
		return invalid("the request of that id is for another tool")
	case !bytes.Equal(canonical(x.params), q.arguments):
		return invalid("the request of that id has other arguments")
	case x.tool.Digest != q.tool.Digest:
		return invalid("the tool is not the one that was requested any more")
	case !f.entry.Pending():
		return f.tooLate()
	}
	return nil
}

// isOwn reports whether somebody would fulfil their own request: as they made it, by another name, or by an agent of theirs. What
// an agent requests its person may do.
func isOwn(by, requester *identity.Principal) bool {
	person := requester.Agent.ID == ""
	return by.Key == requester.Key || participant(by) == participant(requester) ||
		person && (by.User == requester.User || requester.Person != "" && by.Person == requester.Person)
}

// tooLate refuses a call that is not the first, or comes when the time of the request is up.
func (f *fulfilment) tooLate() *Answer {
	if _, refused := findRequest(f.x, f.id); refused != nil {
		return refused
	}
	return fulfilledAlready()
}

func fulfilledAlready() *Answer {
	return invalid("the request of that id is fulfilled already, or is just being fulfilled")
}

// blocked refuses the call as if the PDP had denied it.
func (f *fulfilment) blocked(why string) *Answer {
	return refuse(f.x.g.o.Asker.Block(f.x.operation(), why))
}

// do makes the call, once.
func (f *fulfilment) do(ctx context.Context) *Answer {
	x := f.x
	if _, err := x.link.open(ctx, x.who); err != nil { // while it harms nothing
		return x.failed(err)
	}
	permit, refused := f.askRequester(ctx)
	if refused != nil {
		return refused
	}
	defer func() { permit.Done(context.WithoutCancel(ctx)) }()
	c, ok := f.entry.Claim()
	if !ok {
		return f.tooLate()
	}
	how := fulfilBroken
	defer func() { // also if something panics
		c.Fail(came{refused: unanswered()})
		f.isOver(ctx, how)
	}()
	defer x.link.fulfils()()
	response, err := x.forward(ctx, x.own(f.params()), nil)
	if err != nil {
		return x.failed(err)
	}
	if f.asksBack(response) {
		how = fulfilRefused
		c.Fail(came{refused: f.noSecondRound()})
		return f.noSecondRound()
	}
	how = fulfilAnswered
	c.Finish(f.forRequester(permit, response), len(response.Result)+len(response.Error))
	return fulfilled(x.readable(x.result(response)), participant(x.who), participant(f.entry.Asked.who))
}

func (f *fulfilment) isOver(ctx context.Context, how string) {
	f.x.g.o.Meters.fulfilment(ctx, how)
	f.x.g.o.Logger.Info("a request for a tool is over", "request", f.entry.ID, "how", how, "principal", f.x.who.Key)
}

// params are the params that go to the server: name and arguments, as they were requested, and _meta, which every call
// may have. Other members of the fulfiller are dropped.
func (f *fulfilment) params() rpc.Object {
	return f.x.params.Without(func(name string) bool { return name != "name" && name != "arguments" && name != "_meta" })
}

// askRequester has the PDP decide again whether the requester may make the request. If not, the request is over, and
// the fulfiller gets no other reason. If the PDP does not answer, the request still waits.
func (f *fulfilment) askRequester(ctx context.Context) (*ask.Permit, *Answer) {
	x, q := f.x, &f.entry.Asked
	op := ask.Operation{Principal: q.who, Era: q.era, Server: q.tool.Server, Method: wire.MethodToolRequest, Params: q.params, Tool: x.tool.Tool}
	begun := x.g.o.Now()
	if !q.who.Expires.IsZero() && !begun.Before(q.who.Expires) {
		f.withdraw(ctx, refuse(x.g.o.Asker.Block(op, "the token by which the tool was requested had expired when the request was fulfilled")))
		return nil, f.blocked("the token of who has requested the call has expired")
	}
	permit, refused := x.g.o.Asker.Ask(ctx, op)
	since(ctx, x.g.o.Meters.pdp, begun, x.g.o.Now())
	x.g.health.asked(refused)
	switch {
	case refused == nil:
		return permit, nil
	case refused.Kind == ask.Unavailable:
		return nil, refuse(refused)
	}
	x.g.o.Logger.Info("who has requested a tool may not any more", "request", f.entry.ID, "why", refused.Why, "principal", q.who.Key)
	f.withdraw(ctx, refuse(refused))
	return nil, f.blocked("who has requested the call may not request it any more")
}

// withdraw ends the request of somebody who may not make it any more, unless it is just being fulfilled.
func (f *fulfilment) withdraw(ctx context.Context, why *Answer) {
	if c, ok := f.entry.Claim(); ok {
		c.Fail(came{refused: why})
		f.isOver(ctx, fulfilRefused)
	}
}

// asksBack reports whether the server asks for input before it answers. A call that fulfils a request cannot give any:
// it would have to be made again.
func (f *fulfilment) asksBack(response rpc.Message) bool {
	if e, err := rpc.ReadError(response.Error); response.Error != nil {
		return err == nil && e.Code == era.URLRequired
	}
	in, refused := f.x.inputRequired(response)
	return in != nil || refused != nil
}

func (f *fulfilment) noSecondRound() *Answer {
	return ambiguous("the server asks for input before it answers a call that fulfils a request")
}

// unanswered is what the requester is told if nothing came of the call.
func unanswered() *Answer {
	return refusal(absentUpstream, rpc.InternalError, "the request was being fulfilled, and no answer came; request it again if it may be done twice", "a call that fulfils a request has no answer")
}

// forRequester is what came of the call as far as it is the requester's: without what their permit takes out of it.
func (f *fulfilment) forRequester(permit *ask.Permit, response rpc.Message) came {
	a := came{era: f.x.client.era, by: participant(f.x.who)}
	if s, _ := f.x.link.current(); s != nil {
		a.info = f.x.link.serverInfo(s)
	}
	var withheld *ask.Refusal
	a.response, withheld = permit.Result(response)
	a.refused = refuse(withheld)
	return a
}

// fulfilled is an answer that says by whom a tool was called, and who requested it.
func fulfilled(a *Answer, by, requester evaluation.Ref) *Answer {
	if a.Message.Error != nil {
		return a
	}
	var err error
	if a.Message.Result, err = wire.Fulfilled(a.Message.Result, by, requester); err != nil {
		return ambiguous("the result is not an object")
	}
	return a
}
