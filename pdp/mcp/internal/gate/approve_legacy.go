package gate

import (
	"context"

	"policy-service/pdp/mcp/internal/rpc"
)

// askLegacy is legacy22's: it shows the person of a legacy client a form or a page (shown has no id), on the stream of the call
// (a.x.reply.Interim), and waits until people are not waited for any more (a.follower.Decided()), or the client has answered and
// a.wait(ctx) is over, or it has answered cancel (reaction.over), or ctx ends. What is sent has an id sealed by seal.Approval,
// bound to the session, of {a.approval, tenant}. How the answer comes to the PDP is here too: whoever gets it POSTed calls respond
// for the principal of that POST, and tells the waiter of this process, if there is one, the answer and the error; the waiter makes
// the reaction by a.reacted. While it waits it may call a.tell() each tellsEach. The answer to a page (way is ByURL) says nothing
// about the call: accept is that it was opened, and decline and cancel end the wait (reaction.over).
func (a *approving) askLegacy(ctx context.Context, _ string, _ rpc.Message) reaction {
	a.wait(ctx)
	return reaction{}
}
