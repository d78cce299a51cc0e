package inbox

import (
	"context"
	"time"

	"policy-service/pdp/httpclient"
)

// Trouble is told why a server that answered before does not now. It is asked again.
type Trouble func(error)

// Watch hands to yield what is pending, and then each new request as it comes, once
// each, until ctx ends. A server that is away, or has no time, is asked again; but the
// first time it must answer, so that a wrong address is no endless wait.
//
// New requests come after the cursor, as a rule. One that was filed at the same moment as
// another, or that somebody has a say in only now, may stand before it: so each round
// looks through all of them.
func (i *Inbox) Watch(ctx context.Context, f Filter, trouble Trouble, yield func(Request) error) error {
	w := &watch{inbox: i, filter: f, yield: yield}
	if err := w.round(ctx); err != nil {
		return err
	}
	for failures := 0; ctx.Err() == nil; {
		err := w.next(ctx)
		switch {
		case err == nil:
			failures = 0
		case ctx.Err() != nil:
		case w.failed != nil || !httpclient.Passing(err):
			return err
		default:
			if failures++; failures == 1 {
				trouble(err)
			}
			_ = i.server.Wait(ctx, min(100*time.Millisecond<<min(failures, 10), longestPause)) // the loop looks at ctx
		}
	}
	return ctx.Err()
}

const (
	// watchPoll is after how long all is looked through at the latest.
	watchPoll = 10 * time.Second
	// longestPause is between attempts to reach a server that is away.
	longestPause = 5 * time.Second
)

type watch struct {
	inbox  *Inbox
	filter Filter
	yield  func(Request) error
	seen   map[string]bool // of those that are pending
	cursor string
	failed error // of yield
}

// next waits for a new request, and looks.
func (w *watch) next(ctx context.Context) error {
	began := time.Now()
	p, err := w.inbox.page(ctx, w.filter, w.cursor, watchPoll)
	if err != nil {
		return err
	}
	if len(p.Items) == 0 && p.Next > w.cursor { // others have much that waits; new ones come behind that
		w.cursor = p.Next
		return nil
	}
	if err := w.round(ctx); err != nil || len(p.Items) > 0 {
		return err
	}
	return w.inbox.pace(ctx, began, watchPoll)
}

// round looks through all that is pending. What is pending no more need not be known.
func (w *watch) round(ctx context.Context) error {
	pending := map[string]bool{}
	cursor, err := w.inbox.Pages(ctx, w.filter, func(r Request) error {
		pending[r.ID] = true
		if w.seen[r.ID] {
			return nil
		}
		w.failed = w.yield(r)
		return w.failed
	})
	if err == nil {
		w.seen, w.cursor = pending, cursor
		return nil
	}
	for id := range w.seen { // the rest was not looked at
		pending[id] = true
	}
	w.seen = pending
	return err
}
