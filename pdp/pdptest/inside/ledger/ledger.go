// Package ledger makes no promise: it is for the tests of this module alone. It gives those outside of pdp what they use of
// pdp/internal/ledger.
package ledger

import "policy-service/pdp/internal/ledger"

const KeyFormat = ledger.KeyFormat

var DeriveKey = ledger.DeriveKey
