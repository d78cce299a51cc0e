package inbox

import (
	"context"
	"time"

	"policy-service/pdp/internal/httpclient"
)

// Trouble is called with the reason if a server that answered before does not answer now. Watch then asks again.
type Trouble func(error)

// Watch hands the pending requests to yield, and then each new request as it comes, once each, until ctx ends. If a
// server is away or overloaded, Watch asks again. The server must answer the first time, so that a wrong address is no
// endless wait.
//
// As a rule, new requests come after the cursor. A request may come before it if it was filed at the same moment as
// another, or if the person may decide about it only now. So each round looks at all requests.
func (i *Inbox) Watch(ctx context.Context, f Filter, trouble Trouble, yield func(Request) error) error {
	w := &watch{inbox: i, filter: f, yield: yield}
	if err := w.round(ctx); err != nil {
		return err
	}
	for failures := 0; ; {
		err := w.next(ctx)
		if err == nil {
			failures = 0
			continue
		}
		if w.failed != nil {
			return err
		}
		if failures++; failures == 1 && ctx.Err() == nil && httpclient.Passing(err) {
			trouble(err)
		}
		if err := i.server.Again(ctx, failures, err); err != nil {
			return err
		}
	}
}

// watchPoll is the longest time between two rounds.
const watchPoll = 10 * time.Second

type watch struct {
	inbox  *Inbox
	filter Filter
	yield  func(Request) error
	seen   map[string]bool // ids of pending requests that were yielded
	cursor string
	failed error // of yield
}

// next waits for a new request, and then makes a round.
func (w *watch) next(ctx context.Context) error {
	began := time.Now()
	p, err := w.inbox.page(ctx, w.filter, w.cursor, pageSize, watchPoll)
	if err != nil {
		return err
	}
	if err := w.round(ctx); err != nil || len(p.Items) > 0 {
		return err
	}
	return w.inbox.pace(ctx, began, watchPoll)
}

// round yields each pending request that was not yielded before, and forgets those that are no longer pending.
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
	for id := range w.seen { // the round broke off before it met all of them
		pending[id] = true
	}
	w.seen = pending
	return err
}
