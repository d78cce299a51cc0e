// Package cluster makes no promise: it is for the tests of this module alone. It gives those outside of pdp what they use of
// pdp/internal/cluster.
package cluster

import "policy-service/pdp/internal/cluster"

type Config = cluster.Config
