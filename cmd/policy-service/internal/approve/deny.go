package approve

import (
	"policy-service/cmd/policy-service/internal/cli"
	"policy-service/pdp/approval/inbox"
)

type denyCommand struct {
	serverFlags
	approvalID
	rulingReason
	Version *int `placeholder:"N" help:"The version that you have seen. The server refuses the vote if the version is another one by now. Without the flag, the command denies any version."`
}

// Validate refuses a number that is no version: it would come to mean any version.
func (c denyCommand) Validate() error {
	return checkVersion(c.Version, "deny any version")
}

// Help ends the command's help.
func (denyCommand) Help() string {
	return "One denial is enough, whatever the votes of others." + refusing
}

// Run denies.
func (c denyCommand) Run(s cli.Streams) error {
	ruling := inbox.Ruling{Decision: "deny", Reason: string(c.Reason)}
	if c.Version != nil {
		ruling.Version = *c.Version
	}
	return c.change(s, "deny", (*inbox.Inbox).Decide, c.ID, ruling)
}
