// Package approval makes no promise: it is for the tests of this module alone. It gives those outside of pdp what they use of
// pdp/internal/approval.
package approval

import "policy-service/pdp/internal/approval"

const FormatVersion = approval.FormatVersion
