package audit

import (
	"context"

	"policy-service/cmd/policy-service/internal/cli"
)

type checkpointCommand struct{ logFlags }

// Help ends the command's help.
func (checkpointCommand) Help() string {
	return "Keep the checkpoint where the operators of this machine cannot write. policy-service log verify --checkpoint reads it."
}

// Run prints the checkpoint as it was signed.
func (c checkpointCommand) Run(s cli.Streams) error {
	var checkpoint []byte
	err := c.read(func(ctx context.Context, log auditLog) (err error) {
		checkpoint, err = log.Checkpoint(ctx)
		return err
	})
	if err != nil {
		return c.failed("read the newest checkpoint", err)
	}
	_, err = s.Out.Write(checkpoint)
	return err
}
