// Package server is the process: it puts a [pdp.PDP] on HTTP and keeps it there. Start with [Server.start], which opens one
// thing after the other. Each is a value with its own file, opened by a function of what it needs: a [*base], and what was
// opened before. It has no field for the Server. What one request for a decision goes through reads from top to bottom in
// evaluate.go.
//
// Something new is a type of its own as well, in a file here or in a room below; me.go is the smallest example. Start opens it
// after the telemetry, gives [lifetime] what closes it, and adds it to [Server.opened] before the handlers are made. What it has it
// says by a method each:
//
//   - Routes registers its routes ([routed]). A handler lets a request in by [door.Door.Admit], with a [door.Need].
//     schemas/openapi.yaml has every route.
//   - Ready sets its member of [readiness] ([ready]). For a type of a room a wrapper here does so: see [granting].
//   - Stop lets go of the requests that wait for it, at the stop ([stopping]).
//
// It counts with [telemetry.Telemetry.Meter], and adds 0 at the start, so that the first event is seen. All metrics are in
// pdp/server/README.md. What can be found of it without a server is for a part of package doctor. What is wrong with its
// configuration by itself is for [Config.Findings].
//
// The package decides nothing. It refuses requests that it cannot read, asks the PDP, and writes an answer only if the PDP gave
// one without an error: no failure of any kind turns into an allow.
//
// Only this package and its rooms import echo, so that a move to its next version touches nothing else. A request
// comes in through package door.
package server

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"time"

	"policy-service/pdp"
	"policy-service/pdp/internal/server/approvals"
	"policy-service/pdp/internal/server/audit"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/capabilities"
	"policy-service/pdp/internal/server/door"
	"policy-service/pdp/internal/server/telemetry"
)

// Server is the service as a value: made by [New], running between [Server.Start] and [Server.Stop]. It serves once;
// make another for another run.
type Server struct {
	base
	keys         ownKeys
	decisions    *decisionLog // nil without a decision log
	replica      *replica     // nil without a cluster
	policies     *policies
	listeners    *listeners
	audit        *audit.Audit
	approvals    *approvals.Approvals
	capabilities *capabilities.Capabilities
	opened       []any // is asked for what each part has, by an interface of one method: [routed], [ready], [stopping]
}

// base is what every part of a server is opened with.
type base struct {
	config    Config
	log       *slog.Logger
	door      *door.Door
	telemetry *telemetry.Telemetry
	live      inForce
	lifetime  lifetime
}

// now is the clock that decisions read.
func (b *base) now() time.Time { return b.config.Program.PDP.Now() }

// New checks a configuration and returns a Server that has not started.
func New(config Config) (*Server, error) {
	if err := config.checkData(); err != nil {
		return nil, err
	}
	config = config.withDefaults()
	if err := config.check(); err != nil {
		return nil, err
	}
	silent, err := telemetry.Silent() // until the start
	if err != nil {
		return nil, err
	}
	s := &Server{base: base{config: config, log: config.Program.Logger, telemetry: silent}}
	s.live.Store(&live{config: config, callers: config.Program.Authenticator})
	s.policies, s.listeners = &policies{base: &s.base}, &listeners{base: &s.base, failed: make(chan error, 2)}
	s.door = door.New(door.Options{
		Limits:     config.Program.Limits,
		Load:       config.Load,
		Now:        s.now,
		Log:        s.log,
		Meters:     &silent.Requests,
		LogContext: telemetry.LogContext,
		Callers:    func(ctx context.Context) door.Authenticator { return s.live.pinned(ctx).callers },
		HasTenant:  s.policies.hasTenant,
		Room:       func(caller *auth.Caller) error { return s.decisions.room(caller) },
		Explain:    explain,
	})
	s.approvals = approvals.New(approvals.Options{Door: s.door})
	s.capabilities = capabilities.New(capabilities.Options{Door: s.door})
	s.audit = s.newAudit()
	s.opened = []any{
		&decisionRoutes{base: &s.base, policies: s.policies, keys: &s.keys, receipts: func() string { return s.decisions.receipts() }},
		meRoute{s.door}, s.approvals, granting{s.capabilities}, s.audit,
		&health{door: s.door, opened: func() []any { return s.opened }}, &scrapes{base: &s.base},
		&documents{base: &s.base, keys: &s.keys, listeners: s.listeners, policies: s.policies, approvals: s.approvals, capabilities: s.capabilities},
	}
	return s, nil
}

// Start loads the bundle, listens, and returns when requests are answered. If the bundle is at fault, the error is of
// type [pdp.Problems]. ctx limits the start alone; the server runs until [Server.Stop].
func (s *Server) Start(ctx context.Context) error {
	return s.lifetime.start(ctx, s.start)
}

// start opens one thing after the other, in the order in which they need each other. Each gives the lifetime what closes it.
func (s *Server) start(ctx context.Context) (err error) {
	if err = s.openTelemetry(ctx); err != nil {
		return err
	}
	if err = checkShared(ctx, s.config.Data, s.config.Cluster); err != nil {
		return err
	}
	if s.keys, err = openKeys(&s.config); err != nil {
		return err
	}
	// Before the bundle is loaded, so that the first load is recorded as well.
	if s.decisions, err = openLog(ctx, &s.base, s.audit); err != nil {
		return err
	}
	if s.replica, err = openReplica(ctx, &s.base, s.keys, s.decisions, s.policies, s.listeners); err != nil {
		return err
	}
	if err = s.decisions.recordRestored(ctx); err != nil {
		return err
	}
	if err = s.openStores(); err != nil {
		return err
	}
	if err = s.policies.load(ctx, s.decisions, s.approvals, s.capabilities); err != nil {
		return err
	}
	if err = s.config.Metrics.check(); err != nil {
		return err
	}
	if s.keys.api, err = openCallers(ctx, &s.base, s.keys, s.decisions, s.replica, s.listeners); err != nil {
		return err
	}
	if err = s.replica.openSessions(ctx, &s.base); err != nil {
		return err
	}
	if err = s.listeners.loadCertificates(); err != nil {
		return err
	}
	if err = showState(&s.base, s.state, s.listeners.certificates); err != nil {
		return err
	}
	if err = s.listeners.open(ctx); err != nil {
		return err
	}
	s.decisions.run(s.keys)
	if err = s.replica.run(ctx, &s.base, s.approvals, s.capabilities); err != nil {
		return err
	}
	s.runStores()
	s.opened = append(s.opened, s.policies, s.decisions, s.replica, &s.keys)
	public, own, err := s.handlers()
	if err != nil {
		return err
	}
	s.listeners.serve(public, own)
	s.lifetime.add("requests that wait", closing(s.endWaiting))
	s.lifetime.background("watch", s.policies.watch)
	s.log.Info("serving", "address", s.Addr(), "bundle", s.policies.Status().Digest, "tls", s.listeners.certificates != nil, "credentials", s.live.Load().credentials())
	if url := s.ConsoleURL(); url != "" {
		s.log.Info("console", "url", url, "address", cmp.Or(address(s.listeners.console), s.Addr()))
	}
	return nil
}

// openStores opens the approvals and the capabilities.
func (s *Server) openStores() error {
	if err := openApprovals(&s.base, s.approvals, s.keys, s.decisions, s.replica, s.policies, s.listeners); err != nil {
		return err
	}
	return openCapabilities(&s.base, s.capabilities, s.keys, s.decisions, s.replica, s.policies, s.listeners)
}

// runStores does the work of the stores beside requests, until the stop.
func (s *Server) runStores() {
	if b := s.approvals.Broker; b != nil {
		s.lifetime.background("approvals' work", b.Run)
	}
	if b := s.capabilities.Broker; b != nil {
		s.lifetime.background("capabilities' work", b.Store.Run)
		s.lifetime.background("capabilities' sweeps", b.Run)
	}
}

// stopping is a part of a server for which requests wait, other than those for decisions.
type stopping interface {
	// Stop has them answered, or cut off if another request can go on where they end.
	Stop()
}

func (s *Server) endWaiting() error {
	for _, one := range slices.Backward(s.opened) {
		if one, waits := one.(stopping); waits {
			one.Stop()
		}
	}
	return nil
}

// Addr is the address listened on, as host:port; "" before [Server.Start].
func (s *Server) Addr() string { return address(s.listeners.public) }

// ConsoleURL is the address of the console, with which every link to it begins; "" if there is none, and before
// [Server.Start].
func (s *Server) ConsoleURL() string { return s.listeners.consoleURL() }

// Failed receives the error that ended serving without [Server.Stop].
func (s *Server) Failed() <-chan error { return s.listeners.failed }

// Reload reads the bundle again now. On an error the one in force stays.
func (s *Server) Reload(ctx context.Context) error {
	if s.policies.PDP == nil {
		return pdp.ErrNoBundle
	}
	return s.policies.Reload(ctx)
}

// Stop answers the requests that came, takes no new ones, and undoes [Server.Start]. If ctx ends first, what still
// runs is cut off.
func (s *Server) Stop(ctx context.Context) error {
	s.door.Stopping.Store(true)
	return s.lifetime.stop(ctx)
}
