package pdp

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	// breather is the least time between two readings, so that a file somebody
	// keeps writing to, such as a log, does not keep the reader busy.
	breather = 50 * time.Millisecond
	// A directory is read again after a while even if no event came: soon where
	// something cannot be watched, seldom otherwise, because some file systems
	// (network mounts) send no events for what others do.
	pollBlind   = 2 * time.Second
	pollWatched = 30 * time.Second
)

// Watch reloads whenever the source's directory changes, until ctx is done, and
// then returns nil. What became of a load is told to [Options.OnLoad] and stands
// in [PDP.Status]. The error says that there is nothing to watch, or nothing to
// watch it with.
func (p *PDP) Watch(ctx context.Context) error {
	if p.source.Dir == "" {
		return errors.New("only a directory can be watched, and this bundle is not read from one")
	}
	out, err := newLookout(p.source.Dir)
	if err != nil {
		return fmt.Errorf("watching %s: %w", p.source.Dir, err)
	}
	defer func() { out.close() }()
	for ctx.Err() == nil {
		// Arming stands before reading: an edit after the reading makes an event,
		// one before it was read.
		err := p.reload(ctx, false) // its outcome is told to OnLoad
		read := time.Now()
		pause(ctx, breather)
		limit := p.reloader.pollWatched
		// What mends a refused load may send no event either: a mount, a file that
		// only the MANIFEST names.
		if out.blind || p.inForce.Load().refused != nil {
			limit = p.reloader.pollBlind
		}
		if errors.Is(err, errLater) || out.wait(ctx, limit) {
			out.waitForRoot(ctx, aWhile*p.options.Quiet-time.Since(read))
		}
		// What is to be watched may be other directories by now, or others by the
		// same name, which no bookkeeping can tell apart (inodes are used again).
		// So everything is armed anew, and before the old watches go.
		if next, err := newLookout(p.source.Dir); err == nil {
			out.close()
			out = next
		} else {
			out.blind = true // perhaps too many open files: poll, and try again
		}
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
