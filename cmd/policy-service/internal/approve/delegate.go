package approve

import (
	"policy-service/cmd/policy-service/internal/cli"
	"policy-service/pdp/approval/inbox"
)

type delegateCommand struct {
	serverFlags
	approvalID
	To cli.Given `required:"" placeholder:"ENTITY" help:"The person, as policies write one: 'User::\"noah\"'."`
	rulingReason
}

// Help ends the command's help.
func (delegateCommand) Help() string {
	return "The other person may vote as long as the policies let you vote. " +
		"You no longer have a vote on this approval request." + refusing
}

// Run names the other person.
func (c delegateCommand) Run(s cli.Streams) error {
	return c.change(s, "delegate", (*inbox.Inbox).Decide, c.ID, inbox.Ruling{
		Decision: "delegate",
		To:       string(c.To),
		Reason:   string(c.Reason),
	})
}
