package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"golang.org/x/sync/errgroup"

	"policy-service/evaluation"
	"policy-service/pdp/approval"
	"policy-service/pdp/approval/webhook"
	"policy-service/pdp/server/door"
)

// CallbackConfig is where a caller may have itself told.
type CallbackConfig struct {
	Caller         string `yaml:"caller" required:"yes" doc:"The caller that may use this callback, as records name it, such as key:NAME."`
	webhook.Config `yaml:",inline"`
}

type callbackOf struct{ caller, endpoint string }

// mostCallbacks is how many wait to be taken at one address: a program that takes none
// keeps nobody else from being told of anything.
const mostCallbacks = 100

func (s *Server) newCallbacks() (map[callbackOf]*webhook.Sender, error) {
	all := map[callbackOf]*webhook.Sender{}
	for n, c := range s.config.Approvals.Callbacks {
		key := callbackOf{c.Caller, c.URL}
		sender, err := webhook.New([]webhook.Config{c.Config}, webhook.Options{Logger: s.log, Waiting: mostCallbacks})
		switch {
		case err != nil:
			return nil, fmt.Errorf("approvals.callbacks[%d]: %w", n, err)
		case all[key] != nil:
			return nil, fmt.Errorf("approvals.callbacks[%d]: one before has the same caller and url; delete one of them", n)
		}
		all[key] = sender
	}
	return all, nil
}

// callBack tells the programs that asked for an approval what became of their tasks.
func (a *approvals) callBack(ctx context.Context, id string) error {
	tasks, err := a.Store.TasksOf(id)
	if err != nil {
		return err
	}
	var all errgroup.Group
	for _, t := range tasks {
		all.Go(func() error { return a.callBackOne(ctx, t) })
	}
	return all.Wait()
}

func (a *approvals) callBackOne(ctx context.Context, t approval.Task) error {
	sender := a.callbacks[callbackOf{t.Caller, t.Callback}]
	if sender == nil { // not listed any more
		return nil
	}
	f, err := a.follow(ctx, t)
	var p *door.Problem
	if errors.As(err, &p) && p.Status == http.StatusGone { // nothing is left to tell
		return nil
	}
	if err != nil {
		return err
	}
	if slices.ContainsFunc(f.of, func(one approval.Approval) bool { return one.Unrecorded }) {
		return approval.ErrUnrecorded // it is told when it is on record, and not as pending
	}
	status := f.status()
	if status == string(approval.Pending) || t.Events != nil && !slices.Contains(t.Events, status) {
		return nil
	}
	handle, err := a.handle(f)
	if err != nil {
		return err
	}
	for n := range handle.Items {
		handle.Items[n].Result = nil // a notice: what can be used is fetched by who may have it
	}
	body, err := door.Marshal(evaluation.CallbackBody{State: t.CallbackState, Task: handle})
	if err != nil {
		return err
	}
	return sender.Send(ctx, t.ID, status, body)
}
