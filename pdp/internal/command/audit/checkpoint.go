package audit

import (
	"policy-service/pdp/internal/command/cli"
)

type checkpointCommand struct{ logFlags }

// Help ends the command's help.
func (checkpointCommand) Help() string {
	return "Keep the checkpoint where the operators of this machine cannot write. policy-service log verify " +
		"--checkpoint reads it."
}

// Run prints the checkpoint as it was signed.
func (c checkpointCommand) Run(s cli.Streams) error {
	checkpoint, err := find(c.logFlags, "read the newest checkpoint", auditLog.Checkpoint)
	if err != nil {
		return err
	}
	_, err = s.Out.Write(checkpoint)
	return err
}
