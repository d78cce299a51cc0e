package capability

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"time"

	"policy-service/evaluation/capability"
	"policy-service/pdp/ledger"
)

// The proofs that processes have taken: when each is too old, and the same in the order of time.
const (
	prefixProofs    = "xn/"
	prefixProofEnds = "xne/"
)

// proofsLonger is how long a taken proof is known after it is too old, for a process whose clock is behind.
const proofsLonger = time.Minute

// First takes a proof for all processes that write to the engine: one of a use, by the thumbprint of its key and by its id. It
// reports false if a process took it before. [Seen] is asked first, and is enough if there is no other process.
func (s *Store) First(ctx context.Context, use, jkt, jti string, until time.Time) (first bool, err error) {
	if !s.shared {
		return true, nil
	}
	of := capability.ProofKey(jkt, jti)
	hash := sha256.Sum256(append([]byte(use), of[:]...))
	id := base64.RawURLEncoding.EncodeToString(hash[:])
	until = until.Round(0).UTC()
	err = s.ledger.Change(ctx, func(c *change) {
		if first = c.Get(prefixProofs+id, new(time.Time)) == 0; first {
			c.Put(prefixProofs+id, until)
			c.Put(ledger.TimeKey(prefixProofEnds, until, id), true)
		}
	})
	return first && err == nil, err
}

// forgetProofs removes the taken proofs that are too old everywhere.
func (s *Store) forgetProofs(ctx context.Context) error {
	return s.ledger.Past(ctx, prefixProofEnds, s.now().Add(-proofsLonger), func(ctx context.Context, id string) error {
		return s.ledger.Change(ctx, func(c *change) {
			var until time.Time
			if c.Get(prefixProofs+id, &until) > 0 {
				c.Delete(prefixProofs + id)
				c.Delete(ledger.TimeKey(prefixProofEnds, until, id))
			}
		})
	})
}
