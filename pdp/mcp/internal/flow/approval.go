package flow

import (
	"context"

	"policy-service/pdp/mcp/internal/answer"
	"policy-service/pdp/mcp/internal/ask"
	"policy-service/pdp/mcp/internal/people"
)

// decide has the PDP decide about a request, and people if it says that they can: [Visit.approval] is set then. A call that waits
// for them is in nobody's way.
func (v *Visit) decide(ctx context.Context) (refused *answer.Answer) {
	if v.x.brought != nil && v.x.brought.people != nil { // people were asked before
		return v.approve(ctx, nil)
	}
	v.x, refused = v.x.decideKnown(ctx, v.x.brought.answered())
	if refused == nil || refused.Refusal.Wanted == nil || v.x.brought.forServer() { // people are asked about a whole call, and not about what goes on
		return refused
	}
	return v.approve(ctx, refused.Refusal.Wanted)
}

// approve has people decide, whom nobody has asked yet where something is wanted of them.
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
		Tool: x.asked(), Operation: x.operation(), Binding: x.binding(),
	}
	if x.brought != nil {
		c.Answers = x.brought.answers
	}
	return c
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
