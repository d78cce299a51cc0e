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

// fulfils is the request that such a call fulfils.
type fulfils struct {
	id    string
	entry *entry
}

// readFulfilment reads what a call says of a request that it fulfils.
func readFulfilment(x exchange) (exchange, *Answer) {
	if x.request.Method != "tools/call" || x.tool == nil {
		return x, nil
	}
	said, given, err := wire.ReadFulfilment(x.params.Get, x.params.GetObject("_meta").Get)
	switch {
	case err != nil:
		return x, invalid("what the call says of the request that it fulfils cannot be read: " + err.Error())
	case !given:
		return x, nil
	}
	e, refused := findRequest(x.Call, said.RequestID)
	if refused != nil {
		return x, refused
	}
	x.fulfils = &fulfils{said.RequestID, e}
	if refused := x.isRequested(said.OnBehalfOf); refused != nil {
		return x, refused
	}
	// Of what means the same the tool gets what was requested, byte for byte.
	c := *x.Call
	if arguments := e.Asked.params.Get("arguments"); arguments != nil {
		c.params = c.params.With("arguments", arguments)
	} else {
		c.params = c.params.Without(func(name string) bool { return name == "arguments" })
	}
	x.Call = &c
	return x, nil
}

// isRequested refuses a call that is not the one that is requested.
func (x exchange) isRequested(requester string) *Answer {
	q := &x.fulfils.entry.Asked
	switch {
	case requester != participant(q.who).ID:
		return invalid("onBehalfOf names somebody else than who has made the request of that id")
	case isOwn(x.who, q.who):
		return x.blocked("nobody fulfils a request of their own")
	case !q.isFor(x.tool):
		return invalid("the request of that id is for another tool")
	case !bytes.Equal(canonical(x.params), q.arguments):
		return invalid("the request of that id has other arguments")
	case x.tool.Digest != q.tool.Digest:
		return invalid("the tool is not the one that was requested any more")
	case !x.fulfils.entry.Pending():
		return x.tooLate()
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
func (x exchange) tooLate() *Answer {
	if _, refused := findRequest(x.Call, x.fulfils.id); refused != nil {
		return refused
	}
	return fulfilledAlready()
}

func fulfilledAlready() *Answer {
	return invalid("the request of that id is fulfilled already, or is just being fulfilled")
}

// blocked refuses the call as if the PDP had denied it.
func (x exchange) blocked(why string) *Answer {
	return refuse(x.g.o.Asker.Block(x.operation(), why))
}

// fulfil makes the call, once.
func (x exchange) fulfil(ctx context.Context) *Answer {
	if _, err := x.link.open(ctx, x.who); err != nil { // while it harms nothing
		return x.failed(err)
	}
	permit, refused := x.askRequester(ctx)
	if refused != nil {
		return refused
	}
	defer func() { permit.Done(context.WithoutCancel(ctx)) }()
	c, ok := x.fulfils.entry.Claim()
	if !ok {
		return x.tooLate()
	}
	how := fulfilBroken
	defer func() { // also if something panics
		c.Fail(came{refused: unanswered()})
		x.isOver(ctx, how)
	}()
	defer x.link.fulfils()()
	response, err := x.forward(ctx, x.own(x.asRequested()), nil)
	if err != nil {
		return x.failed(err)
	}
	if x.asksBack(response) {
		how = fulfilRefused
		c.Fail(came{refused: noSecondRound()})
		return noSecondRound()
	}
	how = fulfilAnswered
	c.Finish(x.forRequester(permit, response.Message), len(response.Result)+len(response.Error))
	return fulfilled(x.readable(x.result(response.Message)), participant(x.who), participant(x.fulfils.entry.Asked.who))
}

func (x exchange) isOver(ctx context.Context, how string) {
	x.g.o.Meters.fulfilment(ctx, how)
	x.g.o.Logger.Info("a request for a tool is over", "request", x.fulfils.entry.ID, "how", how, "principal", x.who.Key)
}

// asRequested are the params that go to the server: name and arguments, as they were requested, and _meta, which every call
// may have. Other members of the fulfiller are dropped.
func (x Target) asRequested() rpc.Object {
	return x.params.Without(func(name string) bool { return name != "name" && name != "arguments" && name != "_meta" })
}

// askRequester has the PDP decide again whether the requester may make the request. If not, the request is over, and
// the fulfiller gets no other reason. If the PDP does not answer, the request still waits.
func (x exchange) askRequester(ctx context.Context) (*ask.Permit, *Answer) {
	q := &x.fulfils.entry.Asked
	op := ask.Operation{Principal: q.who, Era: q.era, Server: q.tool.Server, Method: wire.MethodToolRequest, Params: q.params, Tool: x.tool.Tool}
	begun := x.g.o.Now()
	if !q.who.Expires.IsZero() && !begun.Before(q.who.Expires) {
		x.withdraw(ctx, refuse(x.g.o.Asker.Block(op, "the token by which the tool was requested had expired when the request was fulfilled")))
		return nil, x.blocked("the token of who has requested the call has expired")
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
	x.g.o.Logger.Info("who has requested a tool may not any more", "request", x.fulfils.entry.ID, "why", refused.Why, "principal", q.who.Key)
	x.withdraw(ctx, refuse(refused))
	return nil, x.blocked("who has requested the call may not request it any more")
}

// withdraw ends the request of somebody who may not make it any more, unless it is just being fulfilled.
func (x exchange) withdraw(ctx context.Context, why *Answer) {
	if c, ok := x.fulfils.entry.Claim(); ok {
		c.Fail(came{refused: why})
		x.isOver(ctx, fulfilRefused)
	}
}

// asksBack reports whether the server asks for input before it answers. A call that fulfils a request cannot give any:
// it would have to be made again.
func (x exchange) asksBack(response relayed) bool {
	if e, err := rpc.ReadError(response.Error); response.Error != nil {
		return err == nil && e.Code == era.URLRequired
	}
	in, refused := x.inputRequired(response)
	return in != nil || refused != nil
}

func noSecondRound() *Answer {
	return ambiguous("the server asks for input before it answers a call that fulfils a request")
}

// unanswered is what the requester is told if nothing came of the call.
func unanswered() *Answer {
	return refusal(absentUpstream, rpc.InternalError, "the request was being fulfilled, and no answer came; request it again if it may be done twice", "a call that fulfils a request has no answer")
}

// forRequester is what came of the call as far as it is the requester's: without what their permit takes out of it.
func (x Target) forRequester(permit *ask.Permit, response rpc.Message) came {
	a := came{era: x.client.era, by: participant(x.who)}
	if s, _ := x.link.current(); s != nil {
		a.info = x.link.serverInfo(s)
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
