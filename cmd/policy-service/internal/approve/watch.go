package approve

import (
	"context"
	"errors"

	"policy-service/cmd/policy-service/internal/cli"
	"policy-service/pdp/approval/inbox"
)

type watchCommand struct {
	serverFlags
}

// Help ends the command's help.
func (watchCommand) Help() string {
	return "The command begins with the approval requests that are pending. " +
		"If the server restarts or is busy, the command asks it again. " +
		"If the server does not answer at the start, the command ends with exit code 2. After an interrupt the exit code is 0."
}

// Run prints approval requests until it is interrupted.
func (c watchCommand) Run(s cli.Streams) error {
	return c.open(s, "watch", func(ctx context.Context, box *inbox.Inbox) error {
		trouble := func(err error) {
			s.Tell("policy-service: %v; the command asks again until the server answers", err)
		}
		err := box.Watch(ctx, inbox.Filter{}, trouble, func(r inbox.Request) error {
			c.print(s, r)
			if !c.JSON {
				s.Print("")
			}
			return nil
		})
		if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			return nil
		}
		return err
	})
}
