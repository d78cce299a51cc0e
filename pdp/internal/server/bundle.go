package server

import (
	"context"
	"errors"

	"policy-service/pdp"
	"policy-service/pdp/internal/server/telemetry"
)

// load waits for the bundle no longer than ctx: reading takes as long as somebody writes to its files, and a signal to
// stop must not.
func (s *Server) load(ctx context.Context) error {
	options := s.config.Program.PDP
	options.BeforeSwap, options.OnLoad = s.admitBundle, s.loaded
	options.Masked = func(ctx context.Context, path []string) bool {
		return s.live.pinned(ctx).mask.Hides("context", path...)
	}
	done := make(chan error, 1)
	var p *pdp.PDP
	go func() {
		var err error
		p, err = pdp.New(s.config.Program.Source, options)
		done <- err
	}()
	select {
	case err := <-done:
		s.pdp = p
		var problems pdp.Problems
		if err == nil {
			s.show(p.Status())
		} else if errors.As(err, &problems) {
			s.decisions.soon(refusedEvent("", problems, nil))
		}
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// admitBundle is asked before a bundle comes into force.
func (s *Server) admitBundle(b pdp.Incoming) error {
	if err := s.decisions.admit(b); err != nil {
		return err
	}
	if ask := s.config.Program.PDP.BeforeSwap; ask != nil {
		return ask(b)
	}
	return nil
}

// loaded is called with the outcome of every load after the first.
func (s *Server) loaded(status pdp.Status) {
	if b := s.capabilities.Broker; b != nil && status.Digest != s.shown.Digest {
		b.PoliciesChanged()
	}
	s.show(status)
	if s.config.Program.PDP.OnLoad != nil {
		s.config.Program.PDP.OnLoad(status)
	}
}

// show logs, counts and records the outcome of a load. A refusal that a load leaves as it was is not shown again.
func (s *Server) show(status pdp.Status) {
	before := s.shown
	s.shown = status
	come := status.Digest != before.Digest
	if come || status.Refused == nil {
		s.telemetry.Loads.Count(telemetry.Loaded)
		s.log.Info("bundle in force", "digest", status.Digest)
	}
	if r := status.Refused; r != nil && (!come || r != before.Refused) {
		s.telemetry.Loads.Count(telemetry.Refused)
		if tenants, _ := firstOf(r.Tenants); len(tenants) > 0 {
			s.log.Error("files of tenants refused; those before them stay in force, if they still load", "tenants", tenants,
				"in_force", status.Digest, "problems", len(r.Problems))
		} else {
			s.log.Error("bundle refused; the one before it stays in force", "in_force", status.Digest, "problems", len(r.Problems))
		}
		first, more := firstOf(r.Problems)
		for _, p := range first {
			s.log.Error(p.String())
		}
		if more > 0 {
			s.log.Error("more problems than these were found; policy-service check tells of them", "more", more)
		}
		s.decisions.soon(refusedEvent(status.Digest, r.Problems, r.Tenants))
	}
}

// watch follows the files of the bundle until the stop.
func (s *Server) watch(ctx context.Context) {
	if err := s.pdp.Watch(ctx); err != nil && ctx.Err() == nil {
		s.log.Error("watching the bundle ended; send SIGHUP after an edit, or restart", "error", err)
	}
}

// hasTenant reports if the bundle in force has a tenant.
func (s *Server) hasTenant(name string) (bool, error) {
	bundle := s.pdp.Bundle()
	if bundle == nil {
		return false, pdp.ErrNoBundle
	}
	return bundle.HasTenant(name), nil
}
