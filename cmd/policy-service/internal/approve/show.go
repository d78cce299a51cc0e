package approve

import (
	"context"
	"time"

	"policy-service/cmd/policy-service/internal/cli"
	"policy-service/pdp/approval/inbox"
)

type showCommand struct {
	serverFlags
	approvalID
	Wait time.Duration `placeholder:"D" help:"While the approval request is pending, wait up to this long until it is decided, such as 30s."`
}

// Run shows the approval request.
func (c showCommand) Run(s cli.Streams) error {
	return c.open(s, "show the approval request", func(ctx context.Context, box *inbox.Inbox) error {
		r, err := box.Get(ctx, c.ID, c.Wait)
		if err == nil {
			c.print(s, r)
		}
		return err
	})
}
