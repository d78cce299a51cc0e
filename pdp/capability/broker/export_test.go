package broker

import "context"

// Sweep asks the policies again about all that is granted.
func (b *Broker) Sweep(ctx context.Context) error {
	_, err := b.sweep(ctx, func(string) bool { return true })
	return err
}
