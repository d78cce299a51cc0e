package broker

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/json"

	"github.com/go-jose/go-jose/v4"
)

// Sweep asks the policies again about all that is granted.
func (b *Broker) Sweep(ctx context.Context) error {
	_, err := b.sweep(ctx, func(string) bool { return true })
	return err
}

// Later are the capabilities of which a sweep finds that they are to be looked at again.
func (b *Broker) Later(ctx context.Context) (later []string, err error) {
	return b.sweep(ctx, func(string) bool { return true })
}

// LookAgain asks about them, and returns those that are still to be looked at.
func (b *Broker) LookAgain(ctx context.Context, ids []string) (later []string, err error) {
	return b.lookAgain(ctx, ids)
}

// Settle has it that the policies were asked about all that is granted.
func (b *Broker) Settle() { b.lists.settle(b.options.PDP().Bundle().Digest()) }

// WasSettled reports whether that was found of any policies.
func (b *Broker) WasSettled() bool {
	b.lists.mu.Lock()
	defer b.lists.mu.Unlock()
	return b.lists.settled != ""
}

// Key implements capability.Keys.
func (b *Broker) Key(_ context.Context, kid string) (ed25519.PublicKey, bool, error) {
	var set jose.JSONWebKeySet
	err := json.Unmarshal(b.options.Keys.JWKS(), &set)
	for _, key := range set.Key(kid) {
		public, is := key.Key.(ed25519.PublicKey)
		return public, is, err
	}
	return nil, false, err
}

// Changed reports whether Run would sweep now.
func (b *Broker) Changed() bool { return len(b.changed) > 0 }

// Knows reports whether what was found out about a token is kept.
func (b *Broker) Knows(token string) bool {
	_, known := b.known.Get(sha256.Sum256([]byte(token)))
	return known
}
