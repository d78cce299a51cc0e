package approve

import (
	"policy-service/cmd/policy-service/internal/cli"
	"policy-service/pdp/approval/inbox"
)

type denyCommand struct {
	serverFlags
	approvalID
	rulingReason
}

// Help ends the command's help.
func (denyCommand) Help() string {
	return "One denial is enough, whatever the votes of others." + refusing
}

// Run denies.
func (c denyCommand) Run(s cli.Streams) error {
	return c.change(s, "deny", (*inbox.Inbox).Decide, c.ID, inbox.Ruling{Decision: "deny", Reason: string(c.Reason)})
}
