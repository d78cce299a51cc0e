package audit

import (
	"context"
	"fmt"

	"policy-service/pdp/internal/command/cli"
	"policy-service/pdp/internal/decisionlog/segment"
)

type consistencyCommand struct {
	logFlags
	File string `arg:"" help:"The file with the checkpoint that you kept. - is standard input."`
}

// Help ends the command's help.
func (consistencyCommand) Help() string {
	return "The proof shows that records were only added since that checkpoint. Check it with policy-service log " +
		"verify --key."
}

// Run prints the proof.
func (c consistencyCommand) Run(s cli.Streams) error {
	old, err := cli.ReadSmall(c.File, s.In)
	if err == nil {
		_, err = segment.ParseCheckpoint(old, nil) // the proof is for verify to judge, but a slip of the pen is not
	}
	if err != nil {
		return fmt.Errorf("cannot read the checkpoint: %w; try a file that log checkpoint printed", err)
	}
	return c.read("prove consistency", func(ctx context.Context, log auditLog) error {
		return log.Consistency(ctx, s.Out, old)
	})
}
