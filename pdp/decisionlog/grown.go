package decisionlog

import (
	"context"
)

// grow makes records visible, and wakes who waits for them.
func (l *Log) grow(size uint64) {
	l.size.Store(size)
	next := make(chan struct{})
	close(*l.grown.Swap(&next))
}

// Beyond waits until the log has more records than size: what follows the log
// reads them then with [Reader.Records]. What is there is durable.
func (l *Log) Beyond(ctx context.Context, size uint64) error {
	for {
		grown := *l.grown.Load() // before the size is read: what comes after that closes this one
		if l.Size() > size {
			return nil
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
