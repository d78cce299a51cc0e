package capability

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"time"

	"policy-service/evaluation/capability"
)

// prefixProofs begins the keys of the proofs that processes have taken, each of which the engine removes some time later.
const prefixProofs = "xn/"

// First takes a proof for all processes that write to the engine: one of a use, by the thumbprint of its key and by its id. It
// reports false if a process took it before, and that is remembered for so long by a clock that no process has. [Seen] is asked
// first, and is enough if there is no other process.
func (s *Store) First(ctx context.Context, use, jkt, jti string, keep time.Duration) (first bool, err error) {
	if !s.shared {
		return true, nil
	}
	of := capability.ProofKey(jkt, jti)
	hash := sha256.Sum256(append([]byte(use), of[:]...))
	id := base64.RawURLEncoding.EncodeToString(hash[:])
	err = s.ledger.Change(ctx, func(c *change) {
		if first = c.Get(prefixProofs+id, new(bool)) == 0; first {
			c.Put(prefixProofs+id, true)
			c.KeepFor(keep)
		}
	})
	return first && err == nil, err
}
