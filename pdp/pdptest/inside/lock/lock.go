// Package lock makes no promise: it is for the tests of this module alone. It gives those outside of pdp what they use of
// pdp/internal/mcp/lock.
package lock

import "policy-service/pdp/internal/mcp/lock"

type File = lock.File
