package server

import (
	"context"
	"io"
	"log/slog"
)

// publisher writes checkpoints to where somebody keeps them. The log's writer must
// never wait for that: a full pipe would hold up every decision.
type publisher struct {
	notes chan []byte
	log   *slog.Logger
}

// maxUnpublished is how many checkpoints wait; with more the oldest are left out. Each
// says all that the ones before it said.
const maxUnpublished = 16

func (s *Server) publish() *publisher {
	p := &publisher{notes: make(chan []byte, maxUnpublished), log: s.log}
	done := make(chan struct{})
	// The log is closed first, with a last checkpoint.
	s.teardown.add("checkpoints", func(ctx context.Context) error {
		close(p.notes)
		select {
		case <-done:
		case <-ctx.Done():
			return ctx.Err()
		}
		return nil
	})
	go func() {
		defer close(done)
		p.write(s.out)
	}()
	return p
}

func (p *publisher) take(note []byte) {
	for {
		select {
		case p.notes <- note:
			return
		default:
		}
		select {
		case <-p.notes:
			p.log.Warn("a checkpoint is not written out: nobody takes it; a later one says as much")
		default: // somebody took it meanwhile
		}
	}
}

func (p *publisher) write(to io.Writer) {
	for note := range p.notes {
		if _, err := to.Write(note); err != nil {
			p.log.Warn("a checkpoint cannot be written out; the log itself keeps it", "error", err)
		}
	}
}
