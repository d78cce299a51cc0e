package flow

import (
	"bytes"
	"context"

	"policy-service/evaluation"
	"policy-service/pdp/internal/mcp/internal/answer"
	"policy-service/pdp/internal/mcp/internal/ask"
	"policy-service/pdp/internal/mcp/internal/era"
	"policy-service/pdp/internal/mcp/internal/meters"
	"policy-service/pdp/internal/mcp/internal/people"
	"policy-service/pdp/internal/rpc"
	"policy-service/pdp/mcp/wire"
)

// A call may fulfil a request of another participant. It is made once, exactly as it was requested, and both participants get
// the result, each as far as the PDP permits. A refusal before the request is claimed leaves the request as it is. Once
// claimed, the request ends with this call in any case: if no answer comes, the gateway cannot know whether the server made the
// call.

type fulfils struct {
	id    string
	entry *people.Entry
}

func readFulfilment(ctx context.Context, x exchange) (exchange, *answer.Answer) {
	if x.Request.Method != "tools/call" || x.tool == nil {
		return x, nil
	}
	said, given, err := wire.ReadFulfilment(x.Params.Get, x.Params.GetObject("_meta").Get)
	switch {
	case err != nil:
		return x, answer.Invalid("what the call says of the request that it fulfils cannot be read: " + err.Error())
	case !given:
		return x, nil
	}
	e, refused := x.g.people.FindRequest(x.Who, true, said.RequestID)
	if refused != nil {
		return x, refused
	}
	x.fulfils = &fulfils{said.RequestID, e}
	if x, refused = x.isRequested(ctx, said.OnBehalfOf); refused != nil {
		return x, refused
	}
	// Arguments that are equal may differ in bytes: the tool gets those that were requested, byte for byte.
	c := *x.Call
	if arguments := e.Asked.Params.Get("arguments"); arguments != nil {
		c.Params = c.Params.With("arguments", arguments)
	} else {
		c.Params = c.Params.Without(func(name string) bool { return name == "arguments" })
	}
	x.Call = &c
	return x, nil
}

// isRequested refuses a call that differs from the requested one. If the server showed others another tool by that name, the
// tool is found in its list for the caller: it may be the requested one.
func (x exchange) isRequested(ctx context.Context, requester string) (_ exchange, refused *answer.Answer) {
	q := &x.fulfils.entry.Asked
	switch {
	case requester != q.Who.Participant().ID:
		return x, answer.Invalid("onBehalfOf names somebody else than who has made the request of that id")
	case people.IsOwn(x.Who, q.Who):
		return x, x.blocked("nobody fulfils a request of their own")
	case !q.IsFor(x.tool.Tool):
		return x, answer.Invalid("the request of that id is for another tool")
	case !bytes.Equal(ask.Canonical(x.Params), q.Arguments):
		return x, answer.Invalid("the request of that id has other arguments")
	case x.tool.Digest != q.Tool.Digest && x.unconfirmed:
		if x, refused = x.findShown(ctx); refused != nil {
			return x, refused
		}
		return x.isRequested(ctx, requester)
	case x.tool.Digest != q.Tool.Digest:
		return x, answer.Invalid("the tool is not the one that was requested any more")
	case !x.fulfils.entry.Pending():
		return x, x.tooLate()
	}
	return x, nil
}

// tooLate refuses a call that is not the first, or that comes when the time of the request is up.
func (x exchange) tooLate() *answer.Answer {
	if _, refused := x.g.people.FindRequest(x.Who, true, x.fulfils.id); refused != nil {
		return refused
	}
	return people.FulfilledAlready()
}

// blocked refuses the call as if the PDP had denied it.
func (x exchange) blocked(why string) *answer.Answer {
	return answer.Refuse(x.g.o.Asker.Block(x.operation(), why))
}

// fulfil makes the call, once.
func (x exchange) fulfil(ctx context.Context) *answer.Answer {
	if _, err := x.link.Open(ctx, x.Who); err != nil { // the request is not claimed yet, so a failure harms nothing
		return x.failed(err)
	}
	permit, refused := x.askRequester(ctx)
	if refused != nil {
		return refused
	}
	defer func() { permit.Done(context.WithoutCancel(ctx)) }()
	c, ok, refused := x.g.people.Claim(x.fulfils.entry)
	switch {
	case refused != nil:
		return refused
	case !ok:
		return x.tooLate()
	}
	how := meters.FulfilBroken
	defer func() { // also after a panic
		c.Fail(people.Result{Refused: people.Unanswered().Refusal})
		x.recordEnd(ctx, how)
	}()
	defer x.link.Fulfils()()
	// Name and arguments are as requested, and every call may have _meta. Other params of the fulfiller are dropped.
	params := x.Params.Without(func(name string) bool { return name != "name" && name != "arguments" && name != "_meta" })
	response, err := x.forward(ctx, x.withServerNames(params), nil)
	if err != nil {
		return x.failed(err)
	}
	if x.wantsInput(response) {
		how = meters.FulfilRefused
		c.Fail(people.Result{Refused: noSecondRound().Refusal})
		return noSecondRound()
	}
	how = meters.FulfilAnswered
	c.Finish(x.forRequester(permit, response.Message), len(response.Result)+len(response.Error))
	return fulfilled(x.readable(x.result(response.Message)), x.Who.Participant(), x.fulfils.entry.Asked.Who.Participant())
}

func (x exchange) recordEnd(ctx context.Context, how string) {
	x.g.o.Meters.Fulfilment(ctx, how)
	x.g.o.Logger.Info("a request for a tool is over", "request", x.fulfils.entry.ID, "how", how, "principal", x.Who.Key)
}

// askRequester lets the PDP decide again whether the requester may make the request. If not, the request ends, and the
// fulfiller gets no further reason. If the PDP does not answer, or has not settled an approval yet, the request still waits.
func (x exchange) askRequester(ctx context.Context) (*ask.Permit, *answer.Answer) {
	q := &x.fulfils.entry.Asked
	op := ask.Operation{Principal: q.Who, Era: q.Era, Server: q.Tool.Server, Method: wire.MethodToolRequest, Params: q.Params, Tool: x.tool.Tool,
		Fulfilled: true}
	begun := x.g.o.Now()
	if !q.Who.Expires.IsZero() && !begun.Before(q.Who.Expires) {
		x.withdraw(ctx, x.g.o.Asker.Block(op, "the token by which the tool was requested had expired when the request was fulfilled"))
		return nil, x.blocked("the token of who has requested the call has expired")
	}
	permit, refused := x.g.ask(ctx, op, q.Shows())
	x.g.o.Meters.Asked(ctx, x.g.o.Now().Sub(begun))
	x.g.o.Asker.Note(refused)
	switch {
	case refused == nil:
		return permit, nil
	case refused.Kind == ask.Unavailable, refused.Kind == ask.Pending:
		return nil, answer.Refuse(refused)
	}
	x.g.o.Logger.Info("who has requested a tool may not any more", "request", x.fulfils.entry.ID, "why", refused.Why, "principal", q.Who.Key)
	x.withdraw(ctx, refused)
	return nil, x.blocked("who has requested the call may not request it any more")
}

// withdraw ends a request whose requester may not make it any more, unless it is being fulfilled at that moment.
func (x exchange) withdraw(ctx context.Context, why *ask.Refusal) {
	if c, ok, _ := x.g.people.Claim(x.fulfils.entry); ok {
		c.Fail(people.Result{Refused: why})
		x.recordEnd(ctx, meters.FulfilRefused)
	}
}

// wantsInput reports whether the server asks for input before it answers. A call that fulfils a request cannot give any: it
// would have to be made again.
func (x exchange) wantsInput(response relayed) bool {
	if e, err := rpc.ReadError(response.Error); response.Error != nil {
		return err == nil && e.Code == era.URLRequired
	}
	in, refused := x.inputRequired(response)
	return in != nil || refused != nil
}

func noSecondRound() *answer.Answer {
	return answer.Ambiguous("the server asks for input before it answers a call that fulfils a request")
}

// forRequester is the result of the call for the requester, without the parts that the requester's permit removes.
func (x Target) forRequester(permit *ask.Permit, response rpc.Message) people.Result {
	a := people.Result{Era: x.Client.Era, By: x.Who.Participant(), Info: x.link.ServerInfo()}
	response, a.Refused = permit.Result(response)
	response = withNonce(permit, response)
	a.Result, a.Error = response.Result, response.Error
	return a
}

// fulfilled adds to an answer the participant that called the tool, and the one that requested the call.
func fulfilled(a *answer.Answer, by, requester evaluation.Ref) *answer.Answer {
	if a.Message.Error != nil {
		return a
	}
	var err error
	if a.Message.Result, err = wire.Fulfilled(a.Message.Result, by, requester); err != nil {
		return answer.Ambiguous("the result is not an object")
	}
	return a
}

// requestedAnswer is the answer for the requester of a call, without the parts that either permit of the requester removes.
func (x exchange) requestedAnswer(a people.Result) *answer.Answer {
	m := rpc.Message{Result: a.Result, Error: a.Error}
	if a.Era != x.Client.Era {
		m = era.Response("tools/call", m, a.Era, x.Client.Era)
	}
	if x.Client.Era == era.Modern {
		m = era.WithServer(m, a.Info)
	}
	return fulfilled(x.result(m), a.By, x.Who.Participant())
}

// requestable adds to a list of tools those that the client may request, but not call, if the client can request tools.
func requestable(ctx context.Context, x exchange, o *page) {
	if x.Request.Method != "tools/list" || o.err != nil || !x.Client.Knows(era.ToolRequests) {
		return
	}
	var hidden []ask.Item
	var of []int
	for n, keep := range o.keep {
		if !keep {
			hidden, of = append(hidden, o.items[n]), append(of, n)
		}
	}
	if len(hidden) == 0 {
		return
	}
	keep, refused := x.g.o.Asker.FilterRequests(ctx, x.operation(), hidden)
	if o.err = refused; refused != nil {
		return
	}
	for n, may := range keep {
		o.keep[of[n]] = may
	}
}
