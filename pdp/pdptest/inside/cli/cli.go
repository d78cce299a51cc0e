// Package cli makes no promise: it is for the tests of this module alone. It gives those outside of pdp what they use of
// pdp/internal/command/cli.
package cli

import "policy-service/pdp/internal/command/cli"

type (
	ExitCode = cli.ExitCode
	Streams  = cli.Streams
)

const (
	Failed = cli.Failed
	No     = cli.No
	OK     = cli.OK
)
