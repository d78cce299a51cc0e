// Package plainfile makes no promise: it is for the tests of this module alone. It gives those outside of pdp what they use of
// pdp/internal/plainfile.
package plainfile

import "policy-service/pdp/internal/plainfile"

var Publish = plainfile.Publish
