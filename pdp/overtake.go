package pdp

import (
	"context"

	"policy-service/pdp/internal/source"
)

// overtake returns a context that ends as soon as the root's files are no longer those that are
// being loaded. That ends the load, because an emergency forbid must not wait for the load of a
// tenant's edit. A tenant's edit does not end a load, because then no load would ever come to
// its end if a tenant edits without a pause. stop must be called.
func (p *PDP) overtake(ctx context.Context, read source.Reading) (_ context.Context, stop func()) {
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

// rootChanges waits until the root's files differ from those that were read. It reports false if
// ctx ends first.
func (p *PDP) rootChanges(ctx context.Context, read source.Reading) bool {
	pause(ctx, p.options.Quiet) // most loads are over by then
	for ctx.Err() == nil {
		out, err := newLookout(p.source.Dir)
		// As in Watch, the directory is watched before it is read.
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
		out.wait(ctx, limit, true)
		out.close()
	}
	return false
}
