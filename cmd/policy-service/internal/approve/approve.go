package approve

import (
	"context"
	"errors"

	"policy-service/cmd/policy-service/internal/cli"
	"policy-service/pdp/approval/inbox"
	"policy-service/pdp/when"
)

type approveCommand struct {
	serverFlags
	approvalID
	rulingReason
	Version    *int        `placeholder:"N" help:"The version that you have seen. The server refuses the vote if the version is another one by now. Without the flag, the command shows the approval request first, and approves that version."`
	ValidUntil when.Moment `placeholder:"TIME" help:"An end of the approval that is earlier than the one the policies give: 2026-11-20T15:04:05Z, or 2026-11-20 (midnight UTC)."`
}

// Help ends the command's help.
func (approveCommand) Help() string {
	return "You approve exactly what was asked, with all its arguments, for the program that asked. " +
		"Nobody approves their own request." + refusing
}

// Validate refuses a number that is no version: it would come to mean any version.
func (c approveCommand) Validate() error {
	return checkVersion(c.Version, "approve what is shown")
}

// checkVersion refuses a number that is no version. Without one the command does something else.
func checkVersion(version *int, without string) error {
	if version != nil && *version < 1 {
		return errors.New("--version is a whole number from 1; leave it out to " + without)
	}
	return nil
}

// Run approves the version that was seen, and no later one.
func (c approveCommand) Run(s cli.Streams) error {
	ruling := inbox.Ruling{Decision: "approve", Reason: string(c.Reason), ValidUntil: c.ValidUntil.Time}
	if c.Version != nil {
		ruling.Version = *c.Version
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
