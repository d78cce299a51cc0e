// Package capability makes no promise: it is for the tests of this module alone. It gives those outside of pdp what they use of
// pdp/internal/capability.
package capability

import "policy-service/pdp/internal/capability"

const FormatVersion = capability.FormatVersion
