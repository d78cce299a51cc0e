package sink

import (
	"context"
	"io"
	"log/slog"
)

// Checkpoints writes signed checkpoints to where they are kept. The log's writer must never wait for that: a full pipe
// would hold up every decision. Make it with [NewCheckpoints].
type Checkpoints struct {
	notes chan []byte
	log   *slog.Logger
	done  chan struct{}
}

// maxUnpublished is how many checkpoints wait. If there are more, the oldest are left out: each checkpoint says all
// that the ones before it said.
const maxUnpublished = 16

// NewCheckpoints writes checkpoints to a writer, until it is stopped.
func NewCheckpoints(to io.Writer, log *slog.Logger) *Checkpoints {
	c := &Checkpoints{notes: make(chan []byte, maxUnpublished), log: log, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		c.write(to)
	}()
	return c
}

// Take takes a checkpoint, and never waits. It must not be called after [Checkpoints.Stop].
func (c *Checkpoints) Take(note []byte) {
	for {
		select {
		case c.notes <- note:
			return
		default:
		}
		select {
		case <-c.notes:
			c.log.Warn("a checkpoint is not written out: nobody takes it; a later one says as much")
		default: // it was taken meanwhile
		}
	}
}

// Stop waits until what was taken is written, as long as ctx lasts.
func (c *Checkpoints) Stop(ctx context.Context) error {
	close(c.notes)
	select {
	case <-c.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *Checkpoints) write(to io.Writer) {
	for note := range c.notes {
		if _, err := to.Write(note); err != nil {
			c.log.Warn("a checkpoint cannot be written out; the log itself keeps it", "error", err)
		}
	}
}
