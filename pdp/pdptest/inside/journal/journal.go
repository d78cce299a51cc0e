// Package journal makes no promise: it is for the tests of this module alone. It gives those outside of pdp what they use of
// pdp/internal/decisionlog/journal.
package journal

import "policy-service/pdp/internal/decisionlog/journal"

const FormatVersion = journal.FormatVersion
