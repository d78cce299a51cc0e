// Package httpclient makes no promise: it is for the tests of this module alone. It gives those outside of pdp what they use of
// pdp/internal/httpclient.
package httpclient

import "policy-service/pdp/internal/httpclient"

type Options = httpclient.Options
