// Package command is the program policy-service, for those who build a binary of their own around it.
package command

import (
	"os"

	"policy-service/pdp/internal/command"
	"policy-service/pdp/internal/command/cli"
)

// Main runs a command line, such as "serve", "--policies", "policies", and returns the code that the process is to exit
// with. It reads and writes the standard streams of the process, and handles its signals.
func Main(args ...string) int {
	return int(command.Run(args, cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
}
