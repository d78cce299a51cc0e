package operate

import (
	"fmt"
	"io"
	"log/slog"

	"policy-service/pdp/internal/command/cli"
	"policy-service/pdp/internal/command/process"
	"policy-service/pdp/internal/server/doctor"
)

// Doctor examines what serve would serve. It takes the flags of serve: put one word in the place of the other.
type Doctor struct {
	Serve
	JSON bool `name:"json" help:"Print JSON, for programs."`
}

// Help is the text at the end of the command's help.
func (Doctor) Help() string {
	return "doctor takes the flags of serve, and changes nothing. It sees the permissions of the user and the disk of the place " +
		"it runs in, so run it where serve runs, as the same user. A server may be running meanwhile.\n\n" +
		"Exit codes: 0 if nothing bites, 1 if something does, 2 if it cannot run."
}

// Run examines.
func (c Doctor) Run(s cli.Streams) error {
	ctx, stop := cli.UntilSignal()
	defer stop()
	config, _, err := c.read()
	if err == errNoPolicies {
		return err // there is nothing to examine
	}
	config.Program.Checkpoints, config.Program.Logger = io.Discard, slog.New(slog.DiscardHandler)
	found := doctor.Examine(ctx, doctor.Patient{Config: config, ConfigErr: err})
	if ctx.Err() != nil {
		return fmt.Errorf("it was interrupted, run it again")
	}
	return process.PrintFindings(found, c.JSON, s)
}
