package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"policy-service/evaluation"
	"policy-service/pdp/approval/webhook"
	"policy-service/pdp/internal/approval"
	"policy-service/pdp/internal/server/auth"
)

// teller sends approval requests to other systems: each that was filed, and each that waits no longer. A message that was
// not sent before a restart is sent after it.
type teller struct {
	broker *Broker
	sender *webhook.Sender // nil if there is no system to tell
	under  sync.Map        // the [approval.Told] on their way, each with its cancel function
	look   chan struct{}   // has run look again
}

const (
	// mostTelling bounds the messages on their way: receivers may be away for an hour.
	mostTelling = 1000
	// ofOneAsker bounds how many of these one caller asked for in a tenant.
	ofOneAsker = mostTelling / 4
	// tellAgain is the time after which the rest is looked for again.
	tellAgain = 10 * time.Second
)

// run sends until its context ends.
func (t *teller) run(ctx context.Context) {
	var telling errgroup.Group
	telling.SetLimit(mostTelling)
	defer func() { _ = telling.Wait() }()
	news := t.broker.Store.News(nil)
	defer news.Close()
	for {
		for _, one := range t.broker.Store.Untold(mostTelling, ofOneAsker) {
			while, stop := context.WithCancel(ctx)
			if _, under := t.under.LoadOrStore(one, stop); under {
				stop()
				continue
			}
			if !telling.TryGo(func() error {
				defer stop()
				if t.tell(while, one); while.Err() != nil {
					t.lookAgain()
				}
				return nil
			}) {
				stop()
				t.under.Delete(one)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-news.C:
		case <-t.look:
		case <-time.After(tellAgain):
		}
	}
}

func (t *teller) lookAgain() {
	select {
	case t.look <- struct{}{}:
	default: // it is to look already
	}
}

// stop has the messages about an approval request sent again, as it is then.
func (t *teller) stop(id string) {
	for _, e := range []approval.Event{approval.Filed, approval.Completed} {
		if stop, under := t.under.Load(approval.Told{Approval: id, Event: e}); under {
			stop.(context.CancelFunc)()
		}
	}
}

// message is the body of a webhook.
type message struct {
	Type      string                  `json:"type"`
	Timestamp time.Time               `json:"timestamp"`
	Data      evaluation.ApprovalView `json:"data"`
}

// tell sends one event. If the server stops before that, the event is sent again. The programs that asked for an
// approval do not wait for a system that is away.
func (t *teller) tell(ctx context.Context, one approval.Told) {
	defer t.under.Delete(one)
	var all errgroup.Group
	all.Go(func() error { return t.tellSystems(ctx, one) })
	var tasks []approval.Task
	var err error
	if one.Event == approval.Completed {
		tasks, err = t.broker.Store.TasksOf(one.Approval)
	}
	for _, task := range tasks {
		all.Go(func() error { return t.broker.callBack(ctx, task) })
	}
	if errors.Join(err, all.Wait()) == nil {
		_ = t.broker.Store.Told(one) // if that fails the event is sent once more
	}
}

func (t *teller) tellSystems(ctx context.Context, one approval.Told) error {
	if t.sender == nil {
		return nil
	}
	a, ok, err := t.broker.Store.Get(ctx, one.Approval)
	if err != nil || !ok {
		return err
	}
	m := message{Type: "approval." + string(one.Event), Timestamp: a.FiledAt, Data: t.broker.approver(auth.Caller{}).linked(ctx, a)}
	if one.Event == approval.Completed {
		m.Timestamp = a.DecidedAt
	}
	body, err := marshal(m)
	if err != nil {
		return err
	}
	return t.sender.Send(ctx, one.Approval+"-"+string(one.Event), string(one.Event), body)
}

// CallbackConfig is an address that a caller may have its tasks sent to.
type CallbackConfig struct {
	Caller         string `yaml:"caller" required:"yes" doc:"The caller that may use this callback, as records name it, such as key:NAME."`
	webhook.Config `yaml:",inline"`
}

type callbackOf struct{ caller, endpoint string }

// mostCallbacks is how many messages wait to be taken at one address: a program that takes none keeps no other program
// from its messages.
const mostCallbacks = 100

// openWebhooks makes the senders to the programs that ask, and to the systems that receive every approval request.
func (b *Broker) openWebhooks() error {
	b.callbacks = map[callbackOf]*webhook.Sender{}
	for n, c := range b.options.Callbacks {
		key := callbackOf{c.Caller, c.URL}
		sender, err := webhook.New([]webhook.Config{c.Config}, webhook.Options{
			Logger:  b.options.Logger,
			Waiting: mostCallbacks,
		})
		if err == nil && b.callbacks[key] != nil {
			err = errors.New("one before has the same caller and url; delete one of them")
		}
		if err != nil {
			return fmt.Errorf("approvals.callbacks[%d]: %w", n, err)
		}
		b.callbacks[key] = sender
	}
	b.teller.broker, b.teller.look = b, make(chan struct{}, 1)
	if len(b.options.Webhooks) > 0 {
		var err error
		b.teller.sender, err = webhook.New(b.options.Webhooks, webhook.Options{Logger: b.options.Logger})
		if err != nil {
			return fmt.Errorf("approvals.%w", err)
		}
	}
	return nil
}

// callBack sends an ended task to the program that asked.
func (b *Broker) callBack(ctx context.Context, t approval.Task) error {
	sender := b.callbacks[callbackOf{t.Caller, t.Callback}]
	if sender == nil { // not listed any more
		return nil
	}
	approvals, err := b.Store.Of(ctx, t)
	if errors.Is(err, approval.ErrNotFound) { // nothing is left to tell
		return nil
	}
	if err != nil {
		return err
	}
	if slices.ContainsFunc(approvals, isUnrecorded) {
		return approval.ErrUnrecorded // the notice is tried again: until then the task would look pending
	}
	f := Followed{t, approvals}
	status := f.status()
	if status == string(approval.Pending) || t.Events != nil && !slices.Contains(t.Events, status) {
		return nil
	}
	handle, err := b.handle(f)
	if err != nil {
		return err
	}
	for n := range handle.Items {
		handle.Items[n].Result = nil // a notice: the program fetches the results by its own credential
	}
	body, err := marshal(evaluation.CallbackBody{State: t.CallbackState, Task: handle})
	if err != nil {
		return err
	}
	return sender.Send(ctx, t.ID, status, body)
}
