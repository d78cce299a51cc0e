package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"policy-service/cmd/policy-service/internal/cli"
	"policy-service/pdp/approval/inbox"
)

// rulingReason is why somebody decides as they do.
type rulingReason struct {
	Reason cli.Given `required:"" placeholder:"R" help:"The reason, for those who read the record. Write no secret into it."`
}

type approvalsApproveCommand struct {
	approvalsAt
	approvalID
	rulingReason
	Version    *int      `placeholder:"N" help:"The version that you have seen. The server refuses the vote if the version is another one by now. Without the flag, the command shows the approval request first, and approves that version."`
	ValidUntil time.Time `placeholder:"RFC3339" help:"An end of the approval that is earlier than the one the policies give."`
}

// Help ends the command's help.
func (approvalsApproveCommand) Help() string {
	return "You approve exactly what was asked, with all its arguments, for the program that asked. Nobody approves their own request." + refusing
}

// Validate refuses a version that is none: it would come to mean any.
func (c approvalsApproveCommand) Validate() error {
	if c.Version != nil && *c.Version < 1 {
		return errors.New("--version is a whole number from 1; leave it out to approve what is shown")
	}
	return nil
}

// Run approves what was seen, and nothing that it became since.
func (c approvalsApproveCommand) Run(s cli.Streams) error {
	return c.open(s, "approve", func(ctx context.Context, box *inbox.Inbox) error {
		ruling := inbox.Ruling{Decision: "approve", Reason: string(c.Reason), ValidUntil: c.ValidUntil}
		if c.Version != nil {
			ruling.Version = *c.Version
		} else {
			r, err := box.Get(ctx, c.ID, 0)
			if err != nil {
				return err
			}
			if r.Version < 1 {
				return errors.New("the server does not say which version this is; update it")
			}
			ruling.Version = r.Version
			c.preview(s, r)
		}
		return c.said(s)(box.Decide(ctx, c.ID, ruling))
	})
}

// preview is what is about to be approved. Programs have their answer alone on standard output.
func (c approvalsApproveCommand) preview(s cli.Streams, r inbox.Request) {
	if c.JSON {
		s.Out = s.Err
	}
	approvalPage{Streams: s}.print(r)
}

type approvalsDenyCommand struct {
	approvalsAt
	approvalID
	rulingReason
}

// Help ends the command's help.
func (approvalsDenyCommand) Help() string {
	return "One denial is enough, whatever the votes of others." + refusing
}

// Run denies.
func (c approvalsDenyCommand) Run(s cli.Streams) error {
	return c.open(s, "deny", func(ctx context.Context, box *inbox.Inbox) error {
		return c.said(s)(box.Decide(ctx, c.ID, inbox.Ruling{Decision: "deny", Reason: string(c.Reason)}))
	})
}

type approvalsDelegateCommand struct {
	approvalsAt
	approvalID
	To cli.Given `required:"" placeholder:"ENTITY" help:"The person, as policies write one: 'User::\"noah\"'."`
	rulingReason
}

// Help ends the command's help.
func (approvalsDelegateCommand) Help() string {
	return "The other person may vote as long as the policies let you vote. You no longer have a vote on this approval request." + refusing
}

// Run names another.
func (c approvalsDelegateCommand) Run(s cli.Streams) error {
	return c.open(s, "delegate", func(ctx context.Context, box *inbox.Inbox) error {
		return c.said(s)(box.Decide(ctx, c.ID, inbox.Ruling{Decision: "delegate", To: string(c.To), Reason: string(c.Reason)}))
	})
}

// withdrawalReason need not be given.
type withdrawalReason struct {
	Reason cli.Given `placeholder:"R" help:"The reason, for those who read the record. Write no secret into it."`
}

type approvalsRevokeCommand struct {
	approvalsAt
	approvalID
	withdrawalReason
}

// Help ends the command's help.
func (approvalsRevokeCommand) Help() string {
	return "What was done with the approval before stays done." + refusing
}

// Run takes an approval back.
func (c approvalsRevokeCommand) Run(s cli.Streams) error {
	return c.open(s, "revoke", func(ctx context.Context, box *inbox.Inbox) error {
		return c.said(s)(box.Revoke(ctx, c.ID, inbox.Ruling{Reason: string(c.Reason)}))
	})
}

type approvalsCancelCommand struct {
	approvalsAt
	approvalID
	withdrawalReason
}

// Help ends the command's help.
func (approvalsCancelCommand) Help() string {
	return "Only the caller that filed the approval request can cancel it." + refusing
}

// Run gives up waiting.
func (c approvalsCancelCommand) Run(s cli.Streams) error {
	return c.open(s, "cancel", func(ctx context.Context, box *inbox.Inbox) error {
		return c.said(s)(box.Cancel(ctx, c.ID, inbox.Ruling{Reason: string(c.Reason)}))
	})
}

// said prints what became of a request.
func (a approvalsAt) said(s cli.Streams) func(inbox.Request, error) error {
	return func(r inbox.Request, err error) error {
		switch {
		case err != nil:
			return err
		case a.JSON:
			a.print(s, r)
		default:
			s.Print("%s", standing(r))
		}
		return nil
	}
}

// standing is how a request stands, in a line.
func standing(r inbox.Request) string {
	line := fmt.Sprintf("approval %s is %s, version %d", r.ID, r.Status, r.Version)
	if r.Pending() {
		line += fmt.Sprintf(": %d of %s", r.Approvals, cli.Plural(r.Quorum, "approval"))
	}
	if !r.ExpiresAt.IsZero() {
		line += ", until " + cli.Time(r.ExpiresAt)
	}
	return line
}
