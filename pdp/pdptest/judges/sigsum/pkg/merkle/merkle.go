// Package merkle stands in for the one of sigsum.org. witnessctl needs one function of it.
package merkle

import "crypto/sha256"

// HashEmptyTree is the root of the empty tree of RFC 6962.
func HashEmptyTree() [sha256.Size]byte { return sha256.Sum256(nil) }
