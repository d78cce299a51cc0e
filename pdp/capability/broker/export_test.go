package broker

import (
	"context"
	"crypto/sha256"
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

// Changed reports whether Run would sweep now.
func (b *Broker) Changed() bool { return len(b.changed) > 0 }

// Knows reports whether what was found out about a token is kept.
func (b *Broker) Knows(token string) bool {
	_, known := b.known.Get(sha256.Sum256([]byte(token)))
	return known
}
