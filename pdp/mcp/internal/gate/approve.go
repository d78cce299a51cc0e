package gate

import (
	"context"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/mcp/internal/ask"
	"policy-service/pdp/mcp/internal/rpc"
)

// A call may need people. They are asked while it waits, in the ways that the operator has named, and what they say the PDP
// says: nothing that a client answers is a permit.

// Approvals say how people are asked.
type Approvals struct {
	// Channels are the ways, in the order in which they are tried: form, url and wait.
	Channels []string
	// Wait is how long a request is held for people at most.
	Wait time.Duration
	// OnDisconnect is what becomes of what people were asked if the client goes away: keep or cancel.
	OnDisconnect string
}

// The ways.
const (
	byForm = "form"
	byURL  = "url"
	byWait = "wait"
)

// What of those who wait there is a bounded number of: of one principal, and of all together by the one key "".
const (
	Waiting    = "waiting"
	AllWaiting = "waiting for all"
)

// approving is a call that people decide about.
type approving struct {
	x *exchange
	// approval is the id of what people are asked, by which a form is answered.
	approval string
}

// reaction is what comes of what a client has answered, or of what it has not. The zero reaction is that what has become of
// the approval counts, and nothing besides: if it is pending still, the call is to be sent again.
type reaction struct {
	// suggested are the arguments that a person would rather have, nil if they have changed none: nothing was approved.
	suggested jsontext.Value
	// refused is set if the answer was none, or could not be brought to the PDP.
	refused *ask.Refusal
}

// respond brings the PDP what the client of who has answered to a form: the person of the answering request says it, whoever
// has sent the call. The error is of [authzenclient.Client.Respond].
//
// askLegacy is for approve_legacy.go: it shows the person of a legacy client a form or a page, on the stream of the call, and
// waits until people are not waited for any more (a.follower.Decided()), or the client has answered and a.x.g.o.Approvals.Wait is
// over since, or it has answered cancel, or ctx ends. What is sent has the id sealed by seal.Approval, bound to the session.
// How the answer comes to the PDP is approve_legacy.go's too: whoever gets it POSTed calls g.respond, and tells the waiter of this
// process, if there is one, the answer and the error; the waiter makes of the two a reaction, by a.reacted.
func (a *approving) askLegacy(ctx context.Context, way string, shown rpc.Message) reaction {
	return reaction{}
}
