package server

import (
	"context"
	"errors"
	"time"

	"policy-service/pdp"
	"policy-service/pdp/internal/capability/broker"
	"policy-service/pdp/internal/server/approvals"
	"policy-service/pdp/internal/server/capabilities"
	"policy-service/pdp/internal/server/telemetry"
)

// policies holds the PDP, which has the policies in force.
type policies struct {
	*pdp.PDP // nil before the load
	*base

	decisions    *decisionLog
	capabilities *capabilities.Capabilities
	shown        pdp.Status // the outcome of the last load that was logged
}

// load waits for the bundle no longer than ctx: reading takes as long as somebody writes to its files, and a signal to
// stop must not.
func (p *policies) load(ctx context.Context, d *decisionLog, a *approvals.Approvals, c *capabilities.Capabilities) error {
	p.decisions, p.capabilities = d, c
	options := p.config.Program.PDP
	options.BeforeSwap, options.OnLoad = p.admit, p.loaded
	options.Masked = func(ctx context.Context, path []string) bool {
		return p.live.pinned(ctx).mask.Hides("context", path...)
	}
	if d != nil {
		options.Recorder = d.recorder
	}
	if a.Broker != nil {
		options.Approvals = a.Broker
	}
	switch {
	case c.Broker != nil:
		options.Capabilities = c.Broker
	case c.Closed != nil:
		options.Capabilities = broker.Closed{Err: c.Closed}
	}
	done := make(chan error, 1)
	var loaded *pdp.PDP
	go func() {
		var err error
		loaded, err = pdp.New(p.config.Program.Source, options)
		done <- err
	}()
	select {
	case err := <-done:
		p.PDP = loaded
		var problems pdp.Problems
		if err == nil {
			p.show(p.Status())
		} else if errors.As(err, &problems) {
			d.soon(refusedEvent("", problems, nil))
		}
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// admit is asked before a bundle comes into force.
func (p *policies) admit(b pdp.Incoming) error {
	if err := p.decisions.admit(b); err != nil {
		return err
	}
	if ask := p.config.Program.PDP.BeforeSwap; ask != nil {
		return ask(b)
	}
	return nil
}

// loaded is called with the outcome of every load after the first.
func (p *policies) loaded(status pdp.Status) {
	if b := p.capabilities.Broker; b != nil && status.Digest != p.shown.Digest {
		b.PoliciesChanged()
	}
	p.show(status)
	if p.config.Program.PDP.OnLoad != nil {
		p.config.Program.PDP.OnLoad(status)
	}
}

// show logs, counts and records the outcome of a load. A refusal that a load leaves as it was is not shown again.
func (p *policies) show(status pdp.Status) {
	before := p.shown
	p.shown = status
	come := status.Digest != before.Digest
	if come || status.Refused == nil {
		p.telemetry.Loads.Count(telemetry.Loaded)
		p.log.Info("bundle in force", "digest", status.Digest)
	}
	if r := status.Refused; r != nil && (!come || r != before.Refused) {
		p.telemetry.Loads.Count(telemetry.Refused)
		if tenants, _ := firstOf(r.Tenants); len(tenants) > 0 {
			p.log.Error("files of tenants refused; those before them stay in force, if they still load", "tenants", tenants,
				"in_force", status.Digest, "problems", len(r.Problems))
		} else {
			p.log.Error("bundle refused; the one before it stays in force", "in_force", status.Digest, "problems", len(r.Problems))
		}
		first, more := firstOf(r.Problems)
		for _, problem := range first {
			p.log.Error(problem.String())
		}
		if more > 0 {
			p.log.Error("more problems than these were found; policy-service check tells of them", "more", more)
		}
		p.decisions.soon(refusedEvent(status.Digest, r.Problems, r.Tenants))
	}
}

// watch follows the files of the bundle until the stop.
func (p *policies) watch(ctx context.Context) {
	if err := p.Watch(ctx); err != nil && ctx.Err() == nil {
		p.log.Error("watching the bundle ended; send SIGHUP after an edit, or restart", "error", err)
	}
}

// hasTenant reports if the bundle in force has a tenant.
func (p *policies) hasTenant(name string) (bool, error) {
	bundle := p.Bundle()
	if bundle == nil {
		return false, pdp.ErrNoBundle
	}
	return bundle.HasTenant(name), nil
}

type bundleState struct {
	Digest      string    `json:"digest"`
	LoadedAt    time.Time `json:"loaded_at"`
	OnDisk      string    `json:"on_disk"`
	Later       []string  `json:"later,omitzero"`
	Unavailable []string  `json:"unavailable,omitzero"`
}

// refusedState is the bundle that was refused, with the first of its problems.
type refusedState struct {
	At       time.Time    `json:"at"`
	Tenants  []string     `json:"tenants,omitzero"`
	Problems pdp.Problems `json:"problems"`
	// More is how many problems more there are.
	More int `json:"more,omitzero"`
}

// Ready implements [ready].
func (p *policies) Ready(is *readiness) {
	bundle := p.Bundle()
	if bundle == nil {
		is.unavailable = true
		return
	}
	status := p.Status()
	is.Bundle = &bundleState{status.Digest, status.LoadedAt.UTC(), status.OnDisk, p.Later(), bundle.Unavailable()}
	if len(is.Bundle.Unavailable) > 0 {
		is.degrade()
	}
	if r := status.Refused; r != nil {
		is.degrade()
		first, more := firstOf(r.Problems)
		tenants, _ := firstOf(r.Tenants)
		is.Refused = &refusedState{r.At.UTC(), tenants, first, more}
	}
}
