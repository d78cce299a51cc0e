// Package latency makes no promise: it is for the tests of this module alone. It gives those outside of pdp what they use of
// pdp/internal/latency.
package latency

import "policy-service/pdp/internal/latency"

type Histogram = latency.Histogram
