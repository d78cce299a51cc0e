// Package c2sp makes no promise: it is for the tests of this module alone. It gives those outside of pdp what they use of
// pdp/internal/decisionlog/c2sp.
package c2sp

import "policy-service/pdp/internal/decisionlog/c2sp"

var ParseProof = c2sp.ParseProof
