package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"policy-service/pdp/approval/inbox"
)

// rulingReason is why somebody decides as they do.
type rulingReason struct {
	Reason given `required:"" placeholder:"R" help:"Why, for whoever reads the record. It must hold no secret."`
}

type approvalsApproveCommand struct {
	approvalsAt
	approvalID
	rulingReason
	Version    *int      `placeholder:"N" help:"The version that you have seen; another one is refused. Without it the request is shown first, and approved as shown."`
	ValidUntil time.Time `placeholder:"RFC3339" help:"An end before the one that the policies give."`
}

// Help ends the command's help.
func (approvalsApproveCommand) Help() string {
	return refusing + "What is approved is exactly what was asked, with all its arguments, for the program that asked. Nobody approves what they ask for themselves."
}

// Validate refuses a version that is none: it would come to mean any.
func (c approvalsApproveCommand) Validate() error {
	if c.Version != nil && *c.Version < 1 {
		return errors.New("--version is a whole number from 1; leave it out to approve what is shown")
	}
	return nil
}

// Run approves what was seen, and nothing that it became since.
func (c approvalsApproveCommand) Run(s streams) error {
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
func (c approvalsApproveCommand) preview(s streams, r inbox.Request) {
	if c.JSON {
		s.out = s.err
	}
	approvalPage{streams: s}.print(r)
}

type approvalsDenyCommand struct {
	approvalsAt
	approvalID
	rulingReason
}

// Help ends the command's help.
func (approvalsDenyCommand) Help() string {
	return refusing + "One denial is enough, whatever others said."
}

// Run denies.
func (c approvalsDenyCommand) Run(s streams) error {
	return c.open(s, "deny", func(ctx context.Context, box *inbox.Inbox) error {
		return c.said(s)(box.Decide(ctx, c.ID, inbox.Ruling{Decision: "deny", Reason: string(c.Reason)}))
	})
}

type approvalsDelegateCommand struct {
	approvalsAt
	approvalID
	To given `required:"" placeholder:"ENTITY" help:"The person, as policies write it: 'User::\"noah\"'."`
	rulingReason
}

// Help ends the command's help.
func (approvalsDelegateCommand) Help() string {
	return refusing + "Who is named decides in your place, as long as the policies would let you; you have no say in this one any more."
}

// Run names another.
func (c approvalsDelegateCommand) Run(s streams) error {
	return c.open(s, "delegate", func(ctx context.Context, box *inbox.Inbox) error {
		return c.said(s)(box.Decide(ctx, c.ID, inbox.Ruling{Decision: "delegate", To: string(c.To), Reason: string(c.Reason)}))
	})
}

// withdrawalReason need not be given.
type withdrawalReason struct {
	Reason given `placeholder:"R" help:"Why, for whoever reads the record. It must hold no secret."`
}

type approvalsRevokeCommand struct {
	approvalsAt
	approvalID
	withdrawalReason
}

// Help ends the command's help.
func (approvalsRevokeCommand) Help() string {
	return refusing + "What was done by the approval before stays done."
}

// Run takes an approval back.
func (c approvalsRevokeCommand) Run(s streams) error {
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
	return refusing + "Only the program whose question made the request can cancel it, by the key it asked with."
}

// Run gives up waiting.
func (c approvalsCancelCommand) Run(s streams) error {
	return c.open(s, "cancel", func(ctx context.Context, box *inbox.Inbox) error {
		return c.said(s)(box.Cancel(ctx, c.ID, inbox.Ruling{Reason: string(c.Reason)}))
	})
}

// said prints what became of a request.
func (a approvalsAt) said(s streams) func(inbox.Request, error) error {
	return func(r inbox.Request, err error) error {
		switch {
		case err != nil:
			return err
		case a.JSON:
			a.print(s, r)
		default:
			s.print("%s", standing(r))
		}
		return nil
	}
}

// standing is how a request stands, in a line.
func standing(r inbox.Request) string {
	line := fmt.Sprintf("approval %s is %s, version %d", r.ID, r.Status, r.Version)
	if r.Pending() {
		line += fmt.Sprintf(": %d of %s", r.Approvals, plural(r.Quorum, "approval"))
	}
	if !r.ExpiresAt.IsZero() {
		line += ", until " + stamp(r.ExpiresAt)
	}
	return line
}
