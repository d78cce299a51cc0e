package pdp

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	// breather is the least time between two readings, so that a file that is written without
	// end, such as a log, does not keep the reader busy.
	breather = 50 * time.Millisecond
	// A directory is read again after a while even if no event came, because some file systems
	// (network mounts) send no events for changes by other machines. The while is pollBlind if
	// a directory cannot be watched, and pollWatched otherwise.
	pollBlind   = 2 * time.Second
	pollWatched = 30 * time.Second
)

// Watch reloads whenever the source's directory changes, until ctx is done, and then returns nil.
// [Options.OnLoad] is called with the outcome of each load, and [PDP.Status] returns it. Watch
// returns an error if the source is no directory, or if the system cannot watch it.
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
		// The directory is watched before it is read. So an edit after the reading makes an event,
		// and an edit before it was read.
		err := p.reload(ctx, false) // OnLoad is called with its outcome
		read := time.Now()
		pause(ctx, breather)
		limit := p.reloader.pollWatched
		// After a refused load, the change that mends it may send no event either: a mount, or a
		// file that only the MANIFEST names.
		if out.blind || p.inForce.Load().refused != nil {
			limit = p.reloader.pollBlind
		}
		if errors.Is(err, errLater) || out.wait(ctx, limit, false) {
			out.wait(ctx, aWhile*p.options.Quiet-time.Since(read), true)
		}
		// By now the directories to watch may be others, or others by the same name, and no
		// bookkeeping can tell those apart (inodes are used again). So every directory is watched
		// anew, before the old watches end.
		if next, err := newLookout(p.source.Dir); err == nil {
			out.close()
			out = next
		} else {
			out.blind = true // perhaps there are too many open files, so poll and try again
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
