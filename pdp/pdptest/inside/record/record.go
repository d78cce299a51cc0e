// Package record makes no promise: it is for the tests of this module alone. It gives those outside of pdp what they use of
// pdp/internal/decisionlog/record.
package record

import "policy-service/pdp/internal/decisionlog/record"

type (
	Decision = record.Decision
	Entry    = record.Entry
	Filter   = record.Filter
	Receipt  = record.Receipt
	Request  = record.Request
)

var Parse = record.Parse
