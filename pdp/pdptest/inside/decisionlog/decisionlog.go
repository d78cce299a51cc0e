// Package decisionlog makes no promise: it is for the tests of this module alone. It gives those outside of pdp what they use of
// pdp/internal/decisionlog.
package decisionlog

import "policy-service/pdp/internal/decisionlog"

type (
	Log     = decisionlog.Log
	Mode    = decisionlog.Mode
	Options = decisionlog.Options
)

const (
	BestEffort = decisionlog.BestEffort
	Strict     = decisionlog.Strict
)

var (
	Open = decisionlog.Open
)
