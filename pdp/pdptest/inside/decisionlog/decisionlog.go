// Package decisionlog makes no promise: it is for the tests of this module alone. It gives those outside of pdp what they use of
// pdp/internal/decisionlog.
package decisionlog

import "policy-service/pdp/internal/decisionlog"

type (
	Log      = decisionlog.Log
	Mode     = decisionlog.Mode
	Options  = decisionlog.Options
	Snapshot = decisionlog.Snapshot
)

const (
	BestEffort = decisionlog.BestEffort
	BundlesDir = decisionlog.BundlesDir
	Strict     = decisionlog.Strict
)

var (
	ErrChanged   = decisionlog.ErrChanged
	Open         = decisionlog.Open
	OpenBundles  = decisionlog.OpenBundles
	OpenReader   = decisionlog.OpenReader
	Read         = decisionlog.Read
	VerifierKeys = decisionlog.VerifierKeys
)
