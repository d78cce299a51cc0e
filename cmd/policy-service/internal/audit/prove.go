package audit

import (
	"context"

	"policy-service/cmd/policy-service/internal/cli"
)

type proveCommand struct {
	logFlags
	ID string `arg:"" help:"The id of the record, such as the value of X-Decision-Id."`
}

// Help ends the command's help.
func (proveCommand) Help() string {
	return "The proof holds the record, its path through the Merkle tree and the signed checkpoint. Check it with " +
		"policy-service log verify --key."
}

// Run prints the proof.
func (c proveCommand) Run(s cli.Streams) error {
	return c.read("prove the record", func(ctx context.Context, log auditLog) error {
		return log.Prove(ctx, s.Out, c.ID)
	})
}
