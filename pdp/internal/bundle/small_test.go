package bundle_test

import "policy-service/pdp/pdptest/bundles"

// What tests of small bundles are written with.
type small = bundles.Files

const allow = bundles.Allow

var (
	one, entity, entities = bundles.One, bundles.Entity, bundles.Entities
	ask, q                = bundles.Ask, bundles.Q
)
