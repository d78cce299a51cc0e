// Package approvals has people approve what a policy decision point (PDP) denied, by AuthZEN's Access Request and Approval
// Profile. Start with [Enforce], which waits for people:
//
//	e := approvals.Enforce(ctx, client, request, handlers, approvals.WithJustification("release 1.4"))
//	if !e.Permitted() {
//		log.Print(e)
//		return errForbidden
//	}
//
// A program that cannot wait where it asks takes the steps one by one: [Ask] files the approval request of a deny, [Look]
// reads what became of the task, and [Use] asks the PDP with the approval. [Watch] reads what changed among all tasks of
// the client's credential, with one call, from a PDP that is this service. A [Task] is JSON, so that another process can
// go on with it ([Resume]); it permits nothing.
//
// [Form], [Notification], [Respond] and [Decidable] are for a gateway that shows an approval request to its approvers.
//
// An approval is no permit: only the PDP's answer to the request with the approval permits. The package uses URLs that
// the PDP names at the PDP's own origin, and at those of [authzenclient.WithEndpointOrigin], which get no credentials.
package approvals
