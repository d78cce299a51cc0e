// Package server is the process: it puts a [pdp.PDP] on HTTP and keeps it there. Start with [New] and [Server.Start],
// which open the parts in their order and introduce them to each other. Each part is a value with its own file. It has
// no field for the Server: what it needs of other parts, the Server gives it as values and functions. What one request
// for a decision goes through reads from top to bottom in evaluate.go.
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
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"policy-service/pdp"
	"policy-service/pdp/internal/cluster"
	"policy-service/pdp/internal/console/sessions"
	"policy-service/pdp/internal/server/approvals"
	"policy-service/pdp/internal/server/audit"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/auth/keys"
	"policy-service/pdp/internal/server/capabilities"
	"policy-service/pdp/internal/server/door"
	"policy-service/pdp/internal/server/listener"
	"policy-service/pdp/internal/server/telemetry"
)

// Server is the service as a value: made by [New], running between [Server.Start] and [Server.Stop]. It serves once;
// make another for another run.
type Server struct {
	config       Config
	log          *slog.Logger
	pdp          *pdp.PDP
	keys         ownKeys
	apiKeys      *keys.Keys   // nil without a data directory, and if the program tells callers apart
	decisions    *decisionLog // nil without a decision log
	audit        *audit.Audit
	approvals    *approvals.Approvals
	capabilities *capabilities.Capabilities
	telemetry    *telemetry.Telemetry
	door         *door.Door
	listeners    *listeners
	live         inForce
	lifetime     lifetime
	cluster      *cluster.Cluster // nil without a cluster
	sessions     *sessions.Shared // of the console, nil without a cluster or a console
	early        *early           // what answers at its addresses if the server waited to join the cluster, nil otherwise
	earlyOwn     *early
	waiting      atomic.Pointer[string] // for what it waited
	servers      []*http.Server
	stopPages    func()      // of the console, nil without one
	shown        pdp.Status  // the outcome of the last load that was logged
	tokenLost    atomic.Bool // the file of the metrics token cannot be read, and that was logged
}

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
	s := &Server{
		config:    config,
		log:       config.Program.Logger,
		telemetry: silent,
		listeners: &listeners{
			config: config,
			log:    config.Program.Logger,
			failed: make(chan error, 2),
		},
	}
	s.door = door.New(door.Options{
		Limits:     config.Program.Limits,
		Load:       config.Load,
		Now:        config.Program.PDP.Now,
		Log:        config.Program.Logger,
		Meters:     &silent.Requests,
		LogContext: telemetry.LogContext,
		Callers:    func(ctx context.Context) door.Authenticator { return s.live.pinned(ctx).callers },
		HasTenant:  s.hasTenant,
		Room:       func(caller *auth.Caller) error { return s.decisions.room(caller) },
		Explain:    explain,
	})
	s.audit, s.approvals = s.newAudit(), approvals.New(approvals.Options{Door: s.door})
	s.capabilities = capabilities.New(capabilities.Options{Door: s.door})
	s.live.Store(&live{config: config, callers: config.Program.Authenticator})
	return s, nil
}

// Start loads the bundle, listens, and returns when requests are answered. If the bundle is at fault, the error is of
// type [pdp.Problems]. ctx limits the start alone; the server runs until [Server.Stop].
func (s *Server) Start(ctx context.Context) error {
	return s.lifetime.start(ctx, s.start)
}

func (s *Server) start(ctx context.Context) error {
	if err := s.openTelemetry(ctx); err != nil {
		return err
	}
	// The log is opened before the bundle is loaded, so that the first load is recorded as well.
	err := s.checkShared(ctx)
	if err != nil {
		return err
	}
	if s.keys, err = openKeys(s.config.Data, s.log); err != nil {
		return err
	}
	approvalKey, err := s.openApprovalKey()
	if err != nil {
		return err
	}
	if err := s.openLog(ctx); err != nil {
		return err
	}
	if err := s.joinCluster(ctx, approvalKey); err != nil {
		return err
	}
	if err := s.decisions.recordRestored(ctx, s.config.Data); err != nil {
		return err
	}
	if err := s.openStores(approvalKey); err != nil {
		return err
	}
	if err := s.load(ctx); err != nil {
		return err
	}
	for _, step := range []func() error{s.config.Metrics.check, func() error { return s.openCallers(ctx, approvalKey) }, s.loadCertificates, s.showState} {
		if err := step(); err != nil {
			return err
		}
	}
	if !s.config.Program.InProcess {
		if err := s.listen(ctx); err != nil {
			return err
		}
		if err := s.listeners.serveAdmin(ctx, s.MetricsHandler(), &s.lifetime); err != nil {
			return err
		}
	}
	if d := s.decisions; d != nil {
		d.events.Look = (&keyWatch{events: d.events, rotated: &d.rotated, signing: s.keys.signing, keys: s.apiKeys}).look
		d.events.CatchUp() // the state before the first request is no change
		s.lifetime.background("events", d.events.Run)
		s.lifetime.background("retention", d.retention.run)
		if d.witnesses != nil {
			s.lifetime.background("witnesses", d.witnesses.Run)
		}
	}
	if s.cluster != nil {
		if err := s.cluster.Opened(ctx, s.revokeUncounted); err != nil {
			return err
		}
		s.lifetime.background("membership", s.cluster.Run)
	}
	if s.approvals.Broker != nil {
		s.lifetime.background("approvals' work", s.approvals.Broker.Run)
	}
	if b := s.capabilities.Broker; b != nil {
		s.lifetime.background("capabilities' work", b.Store.Run)
		s.lifetime.background("capabilities' sweeps", b.Run)
	}
	if err := s.serve(); err != nil {
		return err
	}
	s.lifetime.background("watch", s.watch)
	s.log.Info("serving", "address", s.Addr(), "bundle", s.pdp.Status().Digest, "tls", s.listeners.certificates != nil, "credentials", s.live.Load().credentials())
	if url := s.ConsoleURL(); url != "" {
		s.log.Info("console", "url", url, "address", cmp.Or(address(s.listeners.console), s.Addr()))
	}
	return nil
}

func (s *Server) openStores(approvalKey []byte) error {
	if err := s.openApprovals(approvalKey); err != nil {
		return err
	}
	return s.openCapabilities(approvalKey)
}

func (s *Server) serve() error {
	public, own, err := s.handlers()
	if err != nil {
		return err
	}
	if s.config.Program.InProcess {
		s.listeners.serveInProcess(public, &s.lifetime)
	} else {
		s.serveListeners(public, own)
	}
	s.lifetime.add("who waits", closing(func() error { s.approvals.Stop(); return nil }))
	s.lifetime.add("who waits for status lists", closing(func() error { s.capabilities.Stop(); return nil }))
	if s.stopPages != nil {
		s.lifetime.add("streams of the console", closing(func() error { s.stopPages(); return nil }))
	}
	s.lifetime.add("exports", closing(func() error { s.audit.Stop(); return nil }))
	return nil
}

// serveListeners has the handlers answer at the addresses, and the stop wait for them.
func (s *Server) serveListeners(public, own http.Handler) {
	if s.early == nil {
		s.listenWith(public, own)
	} else {
		s.early.handler.Store(&public)
		if own != nil {
			s.earlyOwn.handler.Store(&own)
		}
	}
	s.lifetime.add("http", func(ctx context.Context) error { return s.listeners.drain(ctx, s.servers, s.door) })
}

func (s *Server) loadCertificates() error {
	if s.early != nil {
		return nil // they are in use
	}
	return s.listeners.loadCertificates()
}

// listen opens the addresses, unless they are open, and refuses those at which too many could ask.
func (s *Server) listen(ctx context.Context) error {
	credentials := s.live.Load().credentials()
	if s.early == nil {
		return s.listeners.open(ctx, credentials, &s.lifetime)
	}
	err := s.listeners.checkExposure(s.listeners.public.Addr(), s.config.Listen, credentials)
	if own := s.listeners.console; own != nil {
		err = errors.Join(err, s.listeners.checkExposure(own.Addr(), s.config.Console.Listen, credentials))
	}
	return err
}

func (s *Server) listenWith(public, own http.Handler) {
	serve := func(handler http.Handler, on net.Listener) {
		handler, on = s.listeners.behind(handler, on)
		server := listener.HTTPServer(handler, s.door.Connections, s.log)
		if tune := s.config.Program.tuneHTTP; tune != nil {
			tune(server)
		}
		s.servers = append(s.servers, server)
		certificates := s.listeners.certificates
		if on.Addr().Network() == "unix" {
			certificates = nil // TLS is for the console's own address
		}
		go func() {
			err := certificates.Serve(server, on)
			closed := errors.Is(err, net.ErrClosed) && s.door.Stopping.Load() // by drain
			if !closed && !errors.Is(err, http.ErrServerClosed) {
				s.log.Error("serving ended", "error", err)
				s.listeners.failed <- err
			}
		}()
	}
	serve(public, s.listeners.public)
	if s.listeners.console != nil {
		serve(own, s.listeners.console)
	}
}

// now is the clock that decisions read.
func (s *Server) now() time.Time { return s.config.Program.PDP.Now() }

// Addr is the address listened on, as host:port; "" before [Server.Start].
func (s *Server) Addr() string {
	return address(s.listeners.public)
}

// ConsoleURL is the address of the console, with which every link to it begins; "" if there is none, and before
// [Server.Start].
func (s *Server) ConsoleURL() string { return s.listeners.consoleURL() }

// Failed receives the error that ended serving without [Server.Stop].
func (s *Server) Failed() <-chan error { return s.listeners.failed }

// Reload reads the bundle again now. On an error the one in force stays.
func (s *Server) Reload(ctx context.Context) error {
	if s.pdp == nil {
		return pdp.ErrNoBundle
	}
	return s.pdp.Reload(ctx)
}

// Stop answers the requests that came, takes no new ones, and undoes [Server.Start]. If ctx ends first, what still
// runs is cut off.
func (s *Server) Stop(ctx context.Context) error {
	s.door.Stopping.Store(true)
	return s.lifetime.stop(ctx)
}
