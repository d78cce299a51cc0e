package pdp_test

import "policy-service/pdp/pdptest/bundles"

// What tests of small bundles are written with.
type bundle = bundles.Files

var (
	one, ask, clock     = bundles.One, bundles.Ask, bundles.Clock
	decoded, notKnowing = bundles.Decoded, bundles.NotKnowing
	decidedAgain        = bundles.Again
)
