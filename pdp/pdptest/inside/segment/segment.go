// Package segment makes no promise: it is for the tests of this module alone. It gives those outside of pdp what they use of
// pdp/internal/decisionlog/segment.
package segment

import "policy-service/pdp/internal/decisionlog/segment"

type (
	Snapshot = segment.Snapshot
)

const (
	BundlesDir = segment.BundlesDir
)

var (
	ErrChanged   = segment.ErrChanged
	OpenBundles  = segment.OpenBundles
	OpenReader   = segment.OpenReader
	Read         = segment.Read
	VerifierKeys = segment.VerifierKeys
)
