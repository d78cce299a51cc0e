// Package remote makes no promise: it is for the tests of this module alone. It gives those outside of pdp what they use of
// pdp/internal/decisionlog/remote.
package remote

import "policy-service/pdp/internal/decisionlog/remote"

var New = remote.New
