package approve

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"policy-service/pdp/internal/approval/inbox"
	"policy-service/pdp/internal/command/cli"
	"policy-service/pdp/internal/when"
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
	seen
	Version    version     `placeholder:"N" help:"The version that you have seen. The server refuses the vote if the version is another one by now. Without the flag, the command shows the approval request first, asks you on a terminal, and approves that version."`
	ValidUntil when.Moment `placeholder:"TIME" help:"An end of the approval that is earlier than the one the policies give: 2026-11-20T15:04:05Z, or 2026-11-20 (midnight UTC)."`
}

// Help ends the command's help.
func (approveCommand) Help() string {
	return "You approve exactly what was asked, with all its arguments, for the program that asked. " +
		"Nobody approves their own request." + refusing
}

// Run approves the version that was seen, and no later one.
func (c approveCommand) Run(s cli.Streams) error {
	if err := c.check(s, "approve", c.Version); err != nil {
		return err
	}
	return c.change(s, "approve", c.deciding(s, c.serverFlags, "Approve this, version %d?", c.Version == 0), c.ID, inbox.Ruling{
		Decision:   "approve",
		Reason:     string(c.Reason),
		Version:    int(c.Version),
		ValidUntil: c.ValidUntil.Time,
	})
}

// deciding decides after it has asked for the missing flags. If it shows the approval request, the ruling is about the version
// that is shown, and about no later one.
func (d seen) deciding(s cli.Streams, at serverFlags, question string, shows bool) changing {
	return func(box *inbox.Inbox, ctx context.Context, id string, ruling inbox.Ruling) (inbox.Request, error) {
		if shows {
			r, err := box.Get(ctx, id, 0)
			if err != nil {
				return r, err
			}
			if ruling.Version = r.Version; r.Version < 1 {
				return r, errors.New("the server does not say which version this is; update it")
			}
			preview := s
			if at.JSON || !d.Yes { // beside the question; and for programs, standard output has the answer alone
				preview.Out = s.Err
			}
			(&page{Streams: preview}).print(r)
			if !d.Yes {
				if err := s.Confirm(ctx, fmt.Sprintf(question, r.Version)); err != nil {
					return r, err
				}
			}
		}
		if ruling.Reason == "" {
			reason, err := s.Ask(ctx, "Reason:")
			if err != nil {
				return inbox.Request{}, err
			}
			if ruling.Reason = reason; reason == "" {
				s.Tell("there is no reason: nothing is done")
				return inbox.Request{}, cli.No
			}
		}
		return box.Decide(ctx, id, ruling)
	}
}

type denyCommand struct {
	serverFlags
	approvalID
	seen
	Version version `placeholder:"N" help:"The version that you have seen. The server refuses the vote if the version is another one by now. Without the flag, the command asks you on a terminal, and elsewhere denies any version."`
}

// Help ends the command's help.
func (denyCommand) Help() string {
	return "One denial is enough, whatever the votes of others." + refusing
}

// Run denies.
func (c denyCommand) Run(s cli.Streams) error {
	if err := c.check(s, "deny", c.Version); err != nil {
		return err
	}
	asks := c.Version == 0 && !c.Yes && s.Interactive()
	ruling := inbox.Ruling{Decision: "deny", Reason: string(c.Reason), Version: int(c.Version)}
	return c.change(s, "deny", c.deciding(s, c.serverFlags, "Deny this, version %d?", asks), c.ID, ruling)
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
