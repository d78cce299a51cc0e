package gate

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient"
	"policy-service/evaluation/authzenclient/approvals"
	"policy-service/pdp/mcp/internal/ask"
	"policy-service/pdp/mcp/internal/rpc"
	"policy-service/pdp/mcp/wire"
)

// What waits for people, somebody decides about by a message of their own, authorization/respond: it may come from a client that
// calls nothing, and to any gateway. It is the word of the principal whose message it is. The gateway brings it to the PDP beside
// that principal's own token, and to nobody else; whether it counts the PDP says.

// decides reports whether people decide by what comes through this gateway: where they are not asked by forms, a message of theirs
// does not count either, for to the PDP it is one.
func (g *Gateway) decides() bool { return slices.Contains(g.o.Approvals.Channels, ByForm) }

// decidesElsewhere is why a decision counts for nothing, however it comes, and whoever has asked for it.
const decidesElsewhere = "this gateway takes no decisions, for it asks nobody by a form; nothing was decided: decide in the console, or by a key of your own"

// vote brings such a message to the PDP. Calls that wait for that approval in this process look at it at once: the watch may be
// late.
func (x *Call) vote(ctx context.Context) *Answer {
	if !x.g.decides() {
		return invalid(decidesElsewhere)
	}
	said, err := wire.ReadRespond(x.request.Params, evaluation.DefaultLimits())
	if err != nil {
		return invalid("this decision cannot be read, and nothing was decided: " + err.Error())
	}
	status, no := x.decides(ctx, said)
	x.g.o.Logger.Info("somebody decides about an approval request", "approval", said.AuthorizationID, "principal", x.who.Key, "taken", no == nil, "status", status)
	if no != nil {
		return no
	}
	if status != "pending" {
		x.g.desk.Heed(x.g.o.Asker.PDP(x.who), said.AuthorizationID)
	}
	return answered(x.says(wire.Responded(said.AuthorizationID, status)))
}

// decides is the status of the approval request after it, as the PDP says. A decision does not depend on whether its client
// stays.
func (x *Call) decides(ctx context.Context, said wire.Respond) (status string, no *Answer) {
	if x.who.Token == "" {
		return "", invalid("this gateway takes no tokens, and so nobody decides here: decide in the console, or by a key of your own")
	}
	person, err := approver(x.who)
	if err != nil {
		return "", invalid("the PDP takes no such token; nothing was decided")
	}
	pdp := x.g.o.Asker.PDP(x.who)
	if pdp == nil {
		return "", untold(errNoPDP)
	}
	ctx, leave, ok := x.g.enter(context.WithoutCancel(ctx))
	if !ok {
		return "", untold(errLinkClosed)
	}
	defer leave()
	if status, err = approvals.Respond(ctx, pdp, said.AuthorizationID, person, said.Answer); err != nil {
		return "", notTaken(err)
	}
	return status, nil
}

// notTaken refuses what the PDP does not take. What it says of its own callers is not for the sender.
func notTaken(err error) *Answer {
	var e *authzenclient.Error
	if !errors.As(err, &e) {
		return untold(err)
	}
	what := ""
	switch {
	case e.Kind == authzenclient.NotAsked, e.Kind == authzenclient.Refused && e.Status == http.StatusNotFound:
		what = "there is no such approval request, or none that you may decide about here"
	case e.Kind != authzenclient.Refused:
		return untold(err)
	case e.Status == http.StatusForbidden:
		what = "you have no vote on this approval request: it may be your own, or of somebody who acts for you, or others decide about it"
	case e.Status == http.StatusConflict, e.Status == http.StatusBadRequest, e.Status == http.StatusRequestEntityTooLarge, e.Status == http.StatusUnprocessableEntity:
		what = "this does not count: " + e.Detail
	default:
		return untold(err)
	}
	return refusal(invalidParams, rpc.InvalidParams, what, err.Error())
}

// untold refuses what the PDP has not answered. It may have taken it all the same: then it says so when it is sent again.
func untold(err error) *Answer {
	after := 5 * time.Second
	if e := (*authzenclient.Error)(nil); errors.As(err, &e) && e.RetryAfter > 0 {
		after = e.RetryAfter
	}
	return refusalWith(ask.Unavailable, rpc.InternalError, "the authorization service did not answer: send this again", err.Error(), comeAgain("", after))
}

// unheard is the way back for a message that has no id: nothing is answered, whatever comes of it. Only who sends too much is told
// so. It has no w over the standard streams.
type unheard struct{ w http.ResponseWriter }

func (unheard) Interim(rpc.Message) error { return nil }
func (unheard) Alive() error              { return nil }
func (unheard) Begin(string)              {}
func (unheard) Stream()                   {}

// Final implements [reply.Reply].
func (u unheard) Final(status int, m rpc.Message) error {
	switch {
	case u.w == nil:
	case status == http.StatusTooManyRequests:
		e, _ := rpc.ReadError(m.Error) // it is ours
		data, _ := rpc.ParseObject(e.Data)
		u.w.Header().Set("Retry-After", string(data.Get("retry_after")))
		u.w.WriteHeader(status)
	default:
		u.w.WriteHeader(http.StatusAccepted)
	}
	return nil
}
