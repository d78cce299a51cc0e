package pdp_test

import "policy-service/pdp/pdptest/bundles"

// What tests of small bundles are written with.
type bundle = bundles.Files

const allow = bundles.Allow

var (
	one, entity, entities = bundles.One, bundles.Entity, bundles.Entities
	ask, q, clock         = bundles.Ask, bundles.Q, bundles.Clock
	decoded, notKnowing   = bundles.Decoded, bundles.NotKnowing
	decidedAgain          = bundles.Again
)
