package audit

import (
	"context"
	"fmt"

	"policy-service/cmd/policy-service/internal/cli"
	"policy-service/pdp/decisionlog"
)

type proveCommand struct {
	logFlags
	ID string `arg:"" help:"The id of the record, such as the value of X-Decision-Id."`
}

// Help ends the command's help.
func (proveCommand) Help() string {
	return "The proof holds the record, its path through the Merkle tree and the signed checkpoint. Check it with policy-service log verify --key."
}

// Run prints the proof.
func (c proveCommand) Run(s cli.Streams) error {
	err := c.read(func(ctx context.Context, log auditLog) error { return log.Prove(ctx, s.Out, c.ID) })
	if err != nil {
		return c.failed("prove the record", err)
	}
	return nil
}

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

type consistencyCommand struct {
	logFlags
	File string `arg:"" help:"The file with the checkpoint that you kept. - is standard input."`
}

// Help ends the command's help.
func (consistencyCommand) Help() string {
	return "The proof shows that records were only added since that checkpoint. Check it with policy-service log verify --key."
}

// Run prints the proof.
func (c consistencyCommand) Run(s cli.Streams) error {
	old, err := cli.ReadSmall(c.File, s.In)
	if err == nil {
		_, err = decisionlog.ParseCheckpoint(old, nil) // the proof is for verify to judge, but a slip of the pen is not
	}
	if err != nil {
		return fmt.Errorf("cannot read the checkpoint: %w; try a file that log checkpoint printed", err)
	}
	err = c.read(func(ctx context.Context, log auditLog) error { return log.Consistency(ctx, s.Out, old) })
	if err != nil {
		return c.failed("prove consistency", err)
	}
	return nil
}
