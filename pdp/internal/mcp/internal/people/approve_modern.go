package people

import (
	"context"
	"crypto/rand"
	"net/http"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation/authzenclient/approvals"
	"policy-service/pdp/internal/mcp/internal/answer"
	"policy-service/pdp/internal/mcp/internal/ask"
	"policy-service/pdp/internal/mcp/internal/era"
	"policy-service/pdp/internal/rpc"
	"policy-service/pdp/internal/seal"
)

// A client of the modern era gets the result "input required", and sends its call again with the answers. The gateway keeps
// nothing in between: the state holds everything, and another gateway with the same keys can continue.

// SealedApproval is the content of a client's requestState while people decide about its call.
type SealedApproval struct {
	// Task is the task at the PDP, and Approval its id.
	Task     approvals.Task `json:"task"`
	Approval string         `json:"approval"`
	// Digest is the digest of the tool's definition when people were asked.
	Digest string `json:"digest"`
	// Way is the channel to the person behind the token, and Key the name of the client's answer.
	Way string `json:"way"`
	Key string `json:"key"`
	// Round counts how often the client had to send its call again without a question.
	Round int `json:"round,omitzero"`
}

// mostEmpty is how often a client must send its call again without a question. Some clients give up on the third time.
const mostEmpty = 2

// show has the client show its person the PDP's question.
func (a *Approval) show(way string, shown *rpc.Message) *answer.Answer {
	key, err := a.o.Ring.Seal(seal.Approval, a.Binding(), []byte(rand.Text()))
	if err != nil {
		return answer.Internal(err)
	}
	asks := rpc.Object{}.With(key, InputRequest(era.Asked(*shown, era.Modern, "")))
	return a.require(asks, &SealedApproval{Approval: a.approval, Digest: a.Tool.Digest, Way: way, Key: key})
}

// require returns the response that has the client send its call again, with the answers to asks.
func (a *Approval) require(asks rpc.Object, s *SealedApproval) *answer.Answer {
	standing := a.follower.Standing()
	s.Task = standing.Task()
	ends := standing.Ends()
	if ends.IsZero() {
		ends = a.o.Now()
	}
	// A client that returns after the task has ended learns of that.
	state, err := seal.SealJSON(a.o.Ring, seal.Approval, a.Binding(), s, ends.Add(StateLife))
	if err != nil {
		return answer.Internal(err)
	}
	result := rpc.Object{}.With("resultType", rpc.String("input_required")).
		With("inputRequests", asks.Value()).With("requestState", rpc.String(state))
	return &answer.Answer{Message: rpc.Answer(rpc.ID{}, result.Value()), Status: http.StatusOK, Outcome: answer.Asked}
}

// Again continues a call that was sent again.
func (a *Approval) Again(ctx context.Context, s *SealedApproval) *answer.Answer {
	a.state = s
	if refused := a.resume(ctx, s); refused != nil {
		return refused
	}
	if !a.follower.Standing().Pending() {
		a.effect.over = s.Way == ByForm && declined(a.Answers.GetObject(s.Key))
		return nil
	}
	if a.answer(ctx, s); a.effect.continues() {
		a.startWait()
	}
	return nil
}

// round has a client send its call once more if people have yet to decide and another round helps: a page may be open, or a
// second person must approve, too.
func (a *Approval) round(ctx context.Context) *answer.Answer {
	s := a.state
	if s == nil || s.Round == mostEmpty || !a.effect.continues() || ctx.Err() != nil || !a.follower.Standing().Pending() {
		return nil
	}
	if s.Way != ByURL && !a.answered && s.Round == 0 {
		return nil
	}
	s.Round++
	return a.require(rpc.Object{}, s)
}

// resume looks up the task. It refuses a state that no longer fits the call. The refusal leaves the task open.
func (a *Approval) resume(ctx context.Context, s *SealedApproval) (refused *answer.Answer) {
	if a.Tool == nil || a.Tool.Digest != s.Digest {
		return answer.Invalid("the tool is not the one that people were asked about any more; send the call without requestState")
	}
	var no *ask.Refusal
	if a.wanted, no = a.o.Asker.Wanted(ctx, a.Operation()); no != nil {
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

func (a *Approval) answer(ctx context.Context, s *SealedApproval) {
	if a.answered = a.Answers.Get(s.Key).Kind() == '{'; !a.answered {
		return
	}
	given := a.Answers.GetObject(s.Key)
	if s.Way == ByURL { // it says that the page was opened, and nothing about the person's decision
		a.effect.over = given.GetString("action") != "accept"
		return
	}
	if !a.decides() { // another gateway, which uses forms, has shown it
		a.effect.refused = answer.Invalid(decidesElsewhere)
		return
	}
	a.effect = a.effectOf(ctx, submit(ctx, a.wanted.PDP(), a.Who, s.Approval, given))
}

// InputRequest returns a request of a server in the form of the modern era.
func InputRequest(m rpc.Message) jsontext.Value {
	params := m.Params
	if params == nil { // some clients read the params of every method
		params = jsontext.Value(`{}`)
	}
	return rpc.Object{}.With("method", rpc.String(m.Method)).With("params", params).Value()
}
