package approve

import (
	"policy-service/cmd/policy-service/internal/cli"
	"policy-service/pdp/approval/inbox"
)

type cancelCommand struct {
	serverFlags
	approvalID
	withdrawalReason
}

// Help ends the command's help.
func (cancelCommand) Help() string {
	return "Only the caller that filed the approval request can cancel it." + refusing
}

// Run withdraws the approval request.
func (c cancelCommand) Run(s cli.Streams) error {
	return c.change(s, "cancel", (*inbox.Inbox).Cancel, c.ID, inbox.Ruling{Reason: string(c.Reason)})
}
