package people

import (
	"context"
	"crypto/rand"
	"net/http"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation/authzenclient/approvals"
	"policy-service/pdp/mcp/internal/answer"
	"policy-service/pdp/mcp/internal/ask"
	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/rpc"
	"policy-service/pdp/seal"
)

// A client of the modern era is answered that input is required, and sends its call again with what it was given. Between the
// two nothing is kept here: the state says all, and another gateway with the same keys goes on with it.

// SealedApproval is what the requestState of a client holds while people decide about its call.
type SealedApproval struct {
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
func (a *Approval) show(way string, shown *rpc.Message) *answer.Answer {
	key, err := a.o.Ring.Seal(seal.Approval, a.Binding(), []byte(rand.Text()))
	if err != nil {
		return answer.Internal(err)
	}
	asks := rpc.Object{}.With(key, InputRequest(era.Asked(*shown, era.Modern, "")))
	return a.require(asks, &SealedApproval{Approval: a.approval, Digest: a.Tool.Digest, Way: way, Key: key})
}

// require is the response that has the client send its call again, with the answers to what is asked.
func (a *Approval) require(asks rpc.Object, s *SealedApproval) *answer.Answer {
	standing := a.follower.Standing()
	s.Task = standing.Task()
	ends := standing.Ends()
	if ends.IsZero() {
		ends = a.o.Now()
	}
	// Who comes when the time is over is told so.
	state, err := seal.SealJSON(a.o.Ring, seal.Approval, a.Binding(), s, ends.Add(StateLife))
	if err != nil {
		return answer.Internal(err)
	}
	result := rpc.Object{}.With("resultType", rpc.String("input_required")).
		With("inputRequests", asks.Value()).With("requestState", rpc.String(state))
	return &answer.Answer{Message: rpc.Answer(rpc.ID{}, result.Value()), Status: http.StatusOK, Outcome: answer.Asked}
}

// Again goes on with a call that is sent again.
func (a *Approval) Again(ctx context.Context, s *SealedApproval) *answer.Answer {
	a.state = s
	if refused := a.resume(ctx, s); refused != nil {
		return refused
	}
	if !a.pending() {
		a.effect.over = s.Way == ByForm && declined(a.Answers.GetObject(s.Key))
		return nil
	}
	if a.answer(ctx, s); a.effect.continues() {
		a.startWait()
	}
	return nil
}

// round has a client that has sent its call again send it once more, if people are waited for still and it is of use: a page may
// be open, or a person has said yes and another must, too.
func (a *Approval) round(ctx context.Context) *answer.Answer {
	s := a.state
	if s == nil || s.Round == mostEmpty || !a.effect.continues() || ctx.Err() != nil || !a.pending() {
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
func (a *Approval) resume(ctx context.Context, s *SealedApproval) (refused *answer.Answer) {
	if a.Tool == nil || a.Tool.Digest != s.Digest {
		return answer.Invalid("the tool is not the one that people were asked about any more; send the call without requestState")
	}
	var no *ask.Refusal
	if a.wanted, no = a.o.Asker.Wanted(ctx, a.Operation); no != nil {
		return answer.Refuse(no)
	}
	standing, err := approvals.Look(ctx, a.wanted.PDP(), s.Task)
	if err != nil {
		return answer.Refuse(a.wanted.Failed(err))
	}
	a.follow(standing)
	a.approval = s.Approval
	return nil
}

// answer brings the PDP what the client answers, if it does.
func (a *Approval) answer(ctx context.Context, s *SealedApproval) {
	if a.answered = a.Answers.Get(s.Key).Kind() == '{'; !a.answered {
		return
	}
	given := a.Answers.GetObject(s.Key)
	if s.Way == ByURL { // what was opened, and not what anybody thinks of the call
		a.effect.over = given.GetString("action") != "accept"
		return
	}
	if !a.decides() { // it was shown by a gateway that shows forms
		a.effect.refused = answer.Invalid(decidesElsewhere)
		return
	}
	a.effect = a.effectOf(ctx, submit(ctx, a.wanted.PDP(), a.Who, s.Approval, given))
}

// InputRequest is a request of a server in the form that the modern era has for it.
func InputRequest(m rpc.Message) jsontext.Value {
	params := m.Params
	if params == nil { // there are clients that read them, whatever the method
		params = jsontext.Value(`{}`)
	}
	return rpc.Object{}.With("method", rpc.String(m.Method)).With("params", params).Value()
}
