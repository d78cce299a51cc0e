// Package bolt makes no promise: it is for the tests of this module alone. It gives those outside of pdp what they use of
// pdp/internal/ledger/bolt.
package bolt

import "policy-service/pdp/internal/ledger/bolt"

const BucketValues = bolt.BucketValues
