// Package export makes no promise: it is for the tests of this module alone. It gives those outside of pdp what they use of
// pdp/internal/decisionlog/export.
package export

import "policy-service/pdp/internal/decisionlog/export"

type (
	Log         = export.Log
	Options     = export.Options
	TailOptions = export.TailOptions
)

var Tail = export.Tail
