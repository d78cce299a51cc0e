// Package command makes no promise: it is for the tests of this module alone. It gives those outside of pdp what they use of
// pdp/internal/command.
package command

import "policy-service/pdp/internal/command"

type Line = command.Line

var (
	Examples  = command.Examples
	NewParser = command.NewParser
	Run       = command.Run
)
