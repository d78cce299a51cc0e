// Package version makes no promise: it is for the tests of this module alone. It gives those outside of pdp, and
// .ci/release, what they use of pdp/internal/version.
package version

import "policy-service/pdp/internal/version"

type Build = version.Build

const Next = version.Next

var Of = version.Of
