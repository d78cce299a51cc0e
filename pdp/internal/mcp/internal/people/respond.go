package people

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient"
	"policy-service/evaluation/authzenclient/approvals"
	"policy-service/pdp/internal/mcp/internal/answer"
	"policy-service/pdp/internal/mcp/internal/ask"
	"policy-service/pdp/internal/mcp/internal/identity"
	"policy-service/pdp/internal/mcp/internal/link"
	"policy-service/pdp/internal/rpc"
	"policy-service/pdp/mcp/wire"
)

// A person may also decide about an approval with the message authorization/respond. It may come from a client that calls
// nothing, and to any gateway. The vote is that of the principal who sends the message. The gateway sends it to the PDP with
// that principal's own token, and to no other party. The PDP decides whether it counts.

// decides reports whether people decide through this gateway. Without forms a message does not count either, because to the
// PDP it is an answer to a form.
func (g *People) decides() bool { return slices.Contains(g.o.Approvals.Channels, ByForm) }

// decidesElsewhere is the reason for which a decision does not count here, in every form and for every requester.
const decidesElsewhere = "this gateway takes no decisions, for it asks nobody by a form; nothing was decided: decide in the console, or by a key of your own"

// Vote sends a decision to the PDP. Calls in this process that wait for the approval look at it at once, because the watch
// may be late.
func (g *People) Vote(ctx context.Context, who *identity.Principal, c link.Client, params jsontext.Value) *answer.Answer {
	if !g.decides() {
		return answer.Invalid(decidesElsewhere)
	}
	said, err := wire.ReadRespond(params, evaluation.DefaultLimits())
	if err != nil {
		return answer.Invalid("this decision cannot be read, and nothing was decided: " + err.Error())
	}
	status, no := g.sendVote(ctx, who, said)
	if no != nil { // the log has the refusal
		return no
	}
	g.o.Logger.Info("somebody has decided about an approval request", "approval", said.AuthorizationID, "principal", who.Key, "status", status)
	if status != "pending" {
		g.desk.Heed(g.o.Asker.PDP(who), said.AuthorizationID)
	}
	return answer.Of(c.Result(rpc.Respond, wire.Responded(said.AuthorizationID, status)))
}

// sendVote returns the status of the approval request after the decision, by the PDP. A decision counts even if its client
// disconnects.
func (g *People) sendVote(ctx context.Context, who *identity.Principal, said wire.Respond) (status string, no *answer.Answer) {
	if who.Token == "" {
		return "", answer.Invalid("this gateway takes no tokens, and so nobody decides here: decide in the console, or by a key of your own")
	}
	person, err := approver(who)
	if err != nil {
		return "", answer.Invalid("the PDP takes no such token; nothing was decided")
	}
	pdp := g.o.Asker.PDP(who)
	if pdp == nil {
		return "", unanswered(ask.ErrAway)
	}
	ctx, leave, ok := g.doors.Enter(context.WithoutCancel(ctx))
	if !ok {
		return "", unanswered(link.ErrClosed)
	}
	defer leave()
	if status, err = approvals.Respond(ctx, pdp, said.AuthorizationID, person, said.Answer); err != nil {
		return "", rejected(err)
	}
	return status, nil
}

// rejected returns the refusal of a decision that the PDP does not accept. The PDP's words about the gateway itself are not
// for the sender.
func rejected(err error) *answer.Answer {
	var e *authzenclient.Error
	if !errors.As(err, &e) {
		return unanswered(err)
	}
	what := ""
	switch {
	case e.Kind == authzenclient.NotAsked, e.Kind == authzenclient.Refused && e.Status == http.StatusNotFound:
		what = "there is no such approval request, or none that you may decide about here"
	case e.Kind != authzenclient.Refused:
		return unanswered(err)
	case e.Status == http.StatusForbidden:
		what = "you have no vote on this approval request: it may be your own, or of somebody who acts for you, or others decide about it"
	case e.Status == http.StatusConflict, e.Status == http.StatusBadRequest, e.Status == http.StatusRequestEntityTooLarge, e.Status == http.StatusUnprocessableEntity:
		what = "this does not count: " + e.Detail
	default:
		return unanswered(err)
	}
	return answer.New(answer.InvalidParams, rpc.InvalidParams, what, err.Error())
}

// unanswered returns the refusal of a decision that the PDP has not answered. The PDP may have accepted it; then it says so
// when the decision is sent again.
func unanswered(err error) *answer.Answer {
	after := again
	if e := (*authzenclient.Error)(nil); errors.As(err, &e) && e.RetryAfter > 0 {
		after = e.RetryAfter
	}
	return answer.With(ask.Unavailable, rpc.InternalError, "the authorization service did not answer: send this again", err.Error(), answer.ComeAgain("", after))
}
