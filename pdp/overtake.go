package pdp

import (
	"context"

	"policy-service/pdp/internal/bundle"
)

// overtake ends a load, by the context that it returns, as soon as the root's files are
// no longer those that are being loaded: an emergency forbid must not wait for what a
// tenant's edit takes. What a tenant edits meanwhile ends no load, or one that edits
// without a pause would have none come to its end. stop must be called.
func (p *PDP) overtake(ctx context.Context, read bundle.Reading) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if p.source.Dir != "" && p.rootChanges(ctx, read) {
			cancel(errOvertaken)
		}
	}()
	return ctx, func() {
		cancel(nil)
		<-done
	}
}

// rootChanges waits until the root is another one than was read, and reports whether
// that was before ctx ended.
func (p *PDP) rootChanges(ctx context.Context, read bundle.Reading) bool {
	pause(ctx, p.options.Quiet) // most loads take no longer
	for ctx.Err() == nil {
		out, err := newLookout(p.source.Dir)
		// As in Watch, arming stands before reading.
		if files, err := p.source.ReadRoot(ctx); err == nil && !files.Reading().SameRootFiles(read) {
			return true
		}
		pause(ctx, breather)
		if err != nil {
			pause(ctx, p.reloader.pollBlind)
			continue
		}
		limit := p.reloader.pollWatched
		if out.blind {
			limit = p.reloader.pollBlind
		}
		out.waitForRoot(ctx, limit)
		out.close()
	}
	return false
}
