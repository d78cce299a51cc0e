package gate

import (
	"context"
	"crypto/rand"
	"net/http"

	"policy-service/evaluation/authzenclient/approvals"
	"policy-service/pdp/mcp/internal/ask"
	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/rpc"
	"policy-service/pdp/seal"
)

// A client of the modern era is answered that input is required, and sends its call again with what it was given. Between the
// two nothing is kept here: the state says all, and another gateway with the same keys goes on with it.

// sealedApproval is what the requestState of a client holds while people decide about its call.
type sealedApproval struct {
	// Task is what people are asked, and Approval the id of it.
	Task     approvals.Task `json:"task"`
	Approval string         `json:"approval"`
	// Digest is that of the tool's definition when people were asked.
	Digest string `json:"digest"`
	// Way is how the person behind the token is asked, and Key the name by which their client answers.
	Way string `json:"way"`
	Key string `json:"key"`
	// Round counts how often the client was told to send its call again with nothing to answer.
	Round int `json:"round,omitzero"`
}

// mostEmpty is how often a client is told to send its call again with nothing to answer: there are clients that give up on the
// third.
const mostEmpty = 2

// show has the client show its person what the PDP asks.
func (a *approving) show(way string, shown *rpc.Message) *Answer {
	key, err := a.x.g.o.Ring.Seal(seal.Approval, a.x.binding(), []byte(rand.Text()))
	if err != nil {
		return unsealed(err)
	}
	asks := rpc.Object{}.With(key, inputRequest(era.Asked(*shown, era.Modern, "")))
	return a.require(asks, &sealedApproval{Approval: a.approval, Digest: a.x.tool.Digest, Way: way, Key: key})
}

// require is the response that has the client send its call again, with the answers to what is asked.
func (a *approving) require(asks rpc.Object, s *sealedApproval) *Answer {
	standing := a.follower.Standing()
	s.Task = standing.Task()
	ends := standing.Ends()
	if ends.IsZero() {
		ends = a.x.g.o.Now()
	}
	// Who comes when the time is over is told so.
	state, err := seal.SealJSON(a.x.g.o.Ring, seal.Approval, a.x.binding(), s, ends.Add(stateLife))
	if err != nil {
		return unsealed(err)
	}
	result := rpc.Object{}.With("resultType", rpc.String("input_required")).
		With("inputRequests", asks.Value()).With("requestState", rpc.String(state))
	return &Answer{Message: rpc.Answer(rpc.ID{}, result.Value()), Status: http.StatusOK, Outcome: outcomeAsked}
}

// again goes on with a call that is sent again.
func (a *approving) again(ctx context.Context, s *sealedApproval) *Answer {
	if refused := a.resume(ctx, s); refused != nil {
		return refused
	}
	if !a.pending() {
		a.reaction.over = s.Way == ByForm && declined(a.x.brought.answers.GetObject(s.Key))
		return nil
	}
	if a.answer(ctx, s); a.reaction.waits() {
		a.waits()
	}
	return nil
}

// round has a client that has sent its call again send it once more, if people are waited for still and it is of use: a page may
// be open, or a person has said yes and another must, too.
func (a *approving) round(ctx context.Context) *Answer {
	s := a.state
	if s == nil || s.Round == mostEmpty || !a.reaction.waits() || ctx.Err() != nil || !a.pending() {
		return nil
	}
	if s.Way != ByURL && !a.answered && s.Round == 0 {
		return nil
	}
	s.Round++
	return a.require(rpc.Object{}, s)
}

// resume finds what people were asked. A state that is not good for the call any more is refused, and costs nothing: what people
// were asked, they are asked still.
func (a *approving) resume(ctx context.Context, s *sealedApproval) (refused *Answer) {
	if a.x.tool == nil || a.x.tool.Digest != s.Digest {
		return invalid("the tool is not the one that people were asked about any more; send the call without requestState")
	}
	var no *ask.Refusal
	if a.wanted, no = a.x.g.o.Asker.Wanted(ctx, a.x.operation()); no != nil {
		return refuse(no)
	}
	standing, err := approvals.Look(ctx, a.wanted.PDP(), s.Task)
	if err != nil {
		return refuse(a.wanted.Failed(err))
	}
	a.follow(standing)
	a.approval = s.Approval
	return nil
}

// answer brings the PDP what the client answers, if it does.
func (a *approving) answer(ctx context.Context, s *sealedApproval) {
	if a.answered = a.x.brought.answers.Get(s.Key).Kind() == '{'; !a.answered {
		return
	}
	answer := a.x.brought.answers.GetObject(s.Key)
	if s.Way == ByURL { // what was opened, and not what anybody thinks of the call
		a.reaction.over = answer.GetString("action") != "accept"
		return
	}
	if !a.x.g.decides() { // it was shown by a gateway that shows forms
		a.reaction.refused = invalid(decidesElsewhere)
		return
	}
	a.reaction = a.reacted(ctx, respond(ctx, a.wanted.PDP(), a.x.who, s.Approval, answer))
}
