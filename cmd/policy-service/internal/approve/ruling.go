package approve

import (
	"context"
	"errors"
	"strconv"

	"policy-service/cmd/policy-service/internal/cli"
	"policy-service/pdp/approval/inbox"
	"policy-service/pdp/when"
)

// version is a version that the person has seen; 0 is none.
type version int

// UnmarshalText refuses a number that is no version: it would come to mean any version.
func (v *version) UnmarshalText(text []byte) error {
	n, err := strconv.ParseUint(string(text), 10, 31)
	if *v = version(n); err != nil || n == 0 {
		return errors.New("a version is a whole number from 1; give the one that you have seen, or leave --version out")
	}
	return nil
}

type approveCommand struct {
	serverFlags
	approvalID
	rulingReason
	Version    version     `placeholder:"N" help:"The version that you have seen. The server refuses the vote if the version is another one by now. Without the flag, the command shows the approval request first, and approves that version."`
	ValidUntil when.Moment `placeholder:"TIME" help:"An end of the approval that is earlier than the one the policies give: 2026-11-20T15:04:05Z, or 2026-11-20 (midnight UTC)."`
}

// Help ends the command's help.
func (approveCommand) Help() string {
	return "You approve exactly what was asked, with all its arguments, for the program that asked. " +
		"Nobody approves their own request." + refusing
}

// Run approves the version that was seen, and no later one.
func (c approveCommand) Run(s cli.Streams) error {
	ruling := inbox.Ruling{
		Decision:   "approve",
		Reason:     string(c.Reason),
		Version:    int(c.Version),
		ValidUntil: c.ValidUntil.Time,
	}
	if c.Version > 0 {
		return c.change(s, "approve", (*inbox.Inbox).Decide, c.ID, ruling)
	}
	shown := func(box *inbox.Inbox, ctx context.Context, id string, ruling inbox.Ruling) (inbox.Request, error) {
		r, err := box.Get(ctx, id, 0)
		if err != nil {
			return r, err
		}
		if ruling.Version = r.Version; r.Version < 1 {
			return r, errors.New("the server does not say which version this is; update it")
		}
		c.preview(s, r)
		return box.Decide(ctx, id, ruling)
	}
	return c.change(s, "approve", shown, c.ID, ruling)
}

// preview shows the approval request before the vote. For programs, standard output has the answer alone.
func (c approveCommand) preview(s cli.Streams, r inbox.Request) {
	if c.JSON {
		s.Out = s.Err
	}
	(&page{Streams: s}).print(r)
}

type denyCommand struct {
	serverFlags
	approvalID
	rulingReason
	Version version `placeholder:"N" help:"The version that you have seen. The server refuses the vote if the version is another one by now. Without the flag, the command denies any version."`
}

// Help ends the command's help.
func (denyCommand) Help() string {
	return "One denial is enough, whatever the votes of others." + refusing
}

// Run denies.
func (c denyCommand) Run(s cli.Streams) error {
	ruling := inbox.Ruling{Decision: "deny", Reason: string(c.Reason), Version: int(c.Version)}
	return c.change(s, "deny", (*inbox.Inbox).Decide, c.ID, ruling)
}

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
