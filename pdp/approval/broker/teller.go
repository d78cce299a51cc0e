package broker

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"policy-service/pdp/approval"
	"policy-service/pdp/approval/webhook"
)

// Teller tells other systems of approval requests: of each that was filed, and of each that waits no longer. What they
// were not told before a restart they are told after it.
type Teller struct {
	store  *approval.Store
	sender *webhook.Sender // nil if there is no system to tell
	// callBack tells the programs that asked for an approval.
	callBack func(ctx context.Context, approval string) error

	mu    sync.Mutex
	under map[approval.Told]bool // being told
}

const (
	// mostTelling bounds what is told at once: receivers may be away for an hour.
	mostTelling = 1000
	// ofOneAsker bounds how many of these one caller asked for in a tenant.
	ofOneAsker = mostTelling / 4
	// tellAgain is the time after which the rest is looked for again.
	tellAgain = 10 * time.Second
)

// NewTeller tells other systems by sender, and by callBack the programs that asked. Sender is nil if there is no system
// to tell.
func NewTeller(store *approval.Store, sender *webhook.Sender, callBack func(context.Context, string) error) *Teller {
	return &Teller{
		store:    store,
		sender:   sender,
		callBack: callBack,
		under:    map[approval.Told]bool{},
	}
}

// Run tells until its context ends.
func (t *Teller) Run(ctx context.Context) {
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

// begin reports whether one event is to be told now.
func (t *Teller) begin(one approval.Told) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.under[one] || len(t.under) >= mostTelling {
		return false
	}
	t.under[one] = true
	return true
}

func (t *Teller) end(one approval.Told) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.under, one)
}

// message is what a receiver is sent.
type message struct {
	Type      string    `json:"type"`
	Timestamp time.Time `json:"timestamp"`
	Data      View      `json:"data"`
}

// tell tells one event. If the server stops before that, the event is told again. The programs that asked for an
// approval do not wait for a system that is away.
func (t *Teller) tell(ctx context.Context, one approval.Told) {
	defer t.end(one)
	var all errgroup.Group
	all.Go(func() error { return t.tellSystems(ctx, one) })
	if one.Event == approval.Completed {
		all.Go(func() error { return t.callBack(ctx, one.Approval) })
	}
	if all.Wait() == nil {
		_ = t.store.Told(one) // if that fails it is told once more
	}
}

func (t *Teller) tellSystems(ctx context.Context, one approval.Told) error {
	if t.sender == nil {
		return nil
	}
	a, ok, err := t.store.Get(ctx, one.Approval)
	if err != nil || !ok {
		return err
	}
	m := message{Type: "approval." + string(one.Event), Timestamp: a.FiledAt, Data: ViewOf(a)}
	if one.Event == approval.Completed {
		m.Timestamp = a.DecidedAt
	}
	body, err := marshal(m)
	if err != nil {
		return err
	}
	return t.sender.Send(ctx, one.Approval+"-"+string(one.Event), string(one.Event), body)
}
