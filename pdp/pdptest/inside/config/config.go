// Package config makes no promise: it is for the tests of this module alone. It gives those outside of pdp what they use of
// pdp/internal/server/config.
package config

import "policy-service/pdp/internal/server/config"

type (
	Given = config.Given
	Key   = config.Key
)
