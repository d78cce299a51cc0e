package server

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"policy-service/pdp/approval"
	"policy-service/pdp/approval/webhook"
)

// teller has other systems hear of approval requests: of each that was filed, and of
// each that waits no longer. What they were not told of is told after a restart.
type teller struct {
	store  *approval.Store
	sender *webhook.Sender // nil where there is nobody to tell
	// callBack tells the programs that asked.
	callBack func(ctx context.Context, approval string) error

	mu    sync.Mutex
	under map[approval.Told]bool // being told
}

const (
	// mostTelling is how many are told of at once: receivers may be away for an hour.
	mostTelling = 1000
	// ofOneAsker is how many of them one caller asked for in a tenant.
	ofOneAsker = mostTelling / 4
	// tellAgain is how often what is left is looked for.
	tellAgain = 10 * time.Second
)

// newTeller checks the receivers.
func (s *Server) newTeller() (*teller, error) {
	t := &teller{store: s.approvals.Store, callBack: s.approvals.callBack, under: map[approval.Told]bool{}}
	if len(s.config.Approvals.Webhooks) == 0 {
		return t, nil
	}
	var err error
	if t.sender, err = webhook.New(s.config.Approvals.Webhooks, webhook.Options{Logger: s.log}); err != nil {
		return nil, fmt.Errorf("approvals.%w", err)
	}
	return t, nil
}

// run tells until the server stops.
func (t *teller) run(ctx context.Context) {
	var telling sync.WaitGroup
	defer telling.Wait()
	for {
		changed := t.store.Changed()
		for _, one := range t.store.Untold(mostTelling, ofOneAsker) {
			if t.begin(one) {
				telling.Go(func() { t.tell(ctx, one) })
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-time.After(tellAgain):
		}
	}
}

// begin reports whether it is to be told now.
func (t *teller) begin(one approval.Told) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.under[one] || len(t.under) >= mostTelling {
		return false
	}
	t.under[one] = true
	return true
}

func (t *teller) end(one approval.Told) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.under, one)
}

// message is what a receiver is sent.
type message struct {
	Type      string       `json:"type"`
	Timestamp time.Time    `json:"timestamp"`
	Data      approvalView `json:"data"`
}

// tell tells one thing. Where the server stops before it is told, it is told again. The
// programs that asked do not wait for a system that is away.
func (t *teller) tell(ctx context.Context, one approval.Told) {
	defer t.end(one)
	var all errgroup.Group
	all.Go(func() error { return t.tellSystems(ctx, one) })
	if one.Event == approval.Completed {
		all.Go(func() error { return t.callBack(ctx, one.Approval) })
	}
	if all.Wait() == nil {
		_ = t.store.Told(one) // where that fails it is told once more
	}
}

func (t *teller) tellSystems(ctx context.Context, one approval.Told) error {
	if t.sender == nil {
		return nil
	}
	a, ok, err := t.store.Get(ctx, one.Approval)
	if err != nil || !ok {
		return err
	}
	m := message{Type: "approval." + string(one.Event), Timestamp: a.FiledAt, Data: viewOf(a)}
	if one.Event == approval.Completed {
		m.Timestamp = a.DecidedAt
	}
	body, err := marshal(m)
	if err != nil {
		return err
	}
	return t.sender.Send(ctx, one.Approval+"-"+string(one.Event), string(one.Event), body)
}
