package engine_test

import "policy-service/pdp/pdptest/bundles"

// What tests of small bundles are written with.
type small = bundles.Files

const allow, deny = bundles.Allow, bundles.Deny

var (
	one, entity, entities = bundles.One, bundles.Entity, bundles.Entities
	ask, q, reason        = bundles.Ask, bundles.Q, bundles.Reason
	toldOf, decidedAgain  = bundles.ToldOf, bundles.Again
	decoded, notKnowing   = bundles.Decoded, bundles.NotKnowing
)
