// Package crypto stands in for the one of sigsum.org, which some module proxies do not have. witnessctl needs it for logs
// of Sigsum, and no test has one.
package crypto

import "crypto/sha256"

// PublicKeySize is the size of an Ed25519 key.
const PublicKeySize = 32

// PublicKey is an Ed25519 key.
type PublicKey [PublicKeySize]byte

// HashBytes is SHA-256.
func HashBytes(b []byte) [sha256.Size]byte { return sha256.Sum256(b) }
