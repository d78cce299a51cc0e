package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"policy-service/evaluation"
	"policy-service/pdp/approval"
	"policy-service/pdp/approval/webhook"
)

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
	for n, c := range b.options.Systems.Callbacks {
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
	b.teller.broker = b
	if len(b.options.Systems.Webhooks) > 0 {
		var err error
		b.teller.sender, err = webhook.New(b.options.Systems.Webhooks, webhook.Options{Logger: b.options.Logger})
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
	if slices.ContainsFunc(approvals, func(one approval.Approval) bool { return one.Unrecorded }) {
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
