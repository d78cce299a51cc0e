// Package process makes no promise: it is for the tests of this module alone. It gives those outside of pdp what they use of
// pdp/internal/command/process.
package process

import "policy-service/pdp/internal/command/process"

const Drain = process.Drain
