package approve

import (
	"policy-service/cmd/policy-service/internal/cli"
	"policy-service/pdp/approval/inbox"
)

type revokeCommand struct {
	serverFlags
	approvalID
	withdrawalReason
}

// Help ends the command's help.
func (revokeCommand) Help() string {
	return "What was done with the approval before stays done." + refusing
}

// Run takes the approval back.
func (c revokeCommand) Run(s cli.Streams) error {
	return c.change(s, "revoke", (*inbox.Inbox).Revoke, c.ID, inbox.Ruling{Reason: string(c.Reason)})
}
