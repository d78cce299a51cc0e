package gateway

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"policy-service/pdp/internal/command/bundledir"
	"policy-service/pdp/internal/command/cli"
	"policy-service/pdp/internal/mcp"
	"policy-service/pdp/internal/server/listener"
	"policy-service/pdp/internal/server/telemetry"
	"policy-service/pdp/internal/version"
)

// running is a gateway and all that it stands on, from its start to its end.
type running struct {
	told      mcp.Config // what the operator wrote
	log       *slog.Logger
	telemetry *telemetry.Telemetry
	pdp       embedded // the zero value if the PDP is elsewhere
	gateway   *mcp.Gateway
	// connections are those of clients.
	connections *listener.Connections
	stopping    atomic.Bool
	failed      chan error // gets the error that ended serving
	relog       func()     // takes level and access of the log from the configuration as it is now
	steps       []func(context.Context) error
}

// start makes the gateway. On an error it leaves nothing behind.
func start(ctx context.Context, told mcp.Config, log *slog.Logger, checkpoints io.Writer) (*running, error) {
	log = slog.New(telemetry.Correlated{Handler: log.Handler()})
	run := &running{told: told, log: log, failed: make(chan error, 1), connections: listener.NewConnections(int(told.Limits.MaxConnections), func() {})}
	if err := run.open(ctx, checkpoints); err != nil {
		return nil, errors.Join(err, run.undo(context.WithoutCancel(ctx)))
	}
	return run, nil
}

func (r *running) open(ctx context.Context, checkpoints io.Writer) (err error) {
	r.telemetry, err = telemetry.Open(ctx, telemetry.Options{
		Version:     version.This().Version,
		Instance:    uuid.NewString(),
		Log:         r.log,
		StopsWithin: telemetry.StopsWithin,
	})
	if err != nil {
		return err
	}
	r.steps = append(r.steps, r.telemetry.Close)
	meters, traces := r.telemetry.Providers()
	deps := mcp.Deps{Logger: r.log, MeterProvider: meters, TracerProvider: traces, Version: version.This().Version, Known: func(ctx context.Context, who string) { r.connections.Knows(listener.CarrierOf(ctx), who) }}
	if e := r.told.PDP.Embedded; e != nil {
		if r.told.Identity.Static != nil && e.Data != "" {
			deps.FixedToken = "static_" + rand.Text() // it never leaves the process; by how it begins it would be found elsewhere
		}
		if r.pdp, err = embed(ctx, r.told, deps, checkpoints); err != nil {
			return err
		}
		r.steps = append(r.steps, r.pdp.stop)
		deps.Transport = r.pdp.transport
	} else if deps.Transport, err = ToPDP(r.told.PDP); err != nil {
		return err
	}
	if r.gateway, err = mcp.New(ctx, r.told, deps); err != nil {
		return err
	}
	r.steps = append(r.steps, func(context.Context) error { return r.gateway.Close() })
	if r.told.Identity.Static != nil {
		r.log.Warn("every request is for one identity, whoever sends it", "sub", r.told.Identity.Static.Sub, "client_id", r.told.Identity.Static.ClientID)
	}
	if why := NoForm(r.told); why != "" {
		r.log.Info(why)
	}
	return nil
}

// undo ends everything, the last thing first.
func (r *running) undo(ctx context.Context) error {
	r.stopping.Store(true)
	var errs []error
	for _, step := range slices.Backward(r.steps) {
		errs = append(errs, step(ctx))
	}
	return errors.Join(errs...)
}

// reload is the effect of a SIGHUP.
func (r *running) reload(ctx context.Context) {
	r.relog()
	if r.pdp.reload == nil {
		r.log.Info("log.level and log.access are read again at SIGHUP, and nothing else: files are followed by themselves, and a changed configuration counts after a restart")
		return
	}
	_ = r.pdp.reload(ctx) // the PDP logs the result
}

// listen opens the address of the configuration, and serves.
func (r *running) listen(ctx context.Context) (addr string, err error) {
	certificates, err := listener.Open(r.tlsFiles(), r.log)
	if err != nil {
		return "", err
	}
	if err := r.watchCertificate(certificates); err != nil {
		return "", err
	}
	on, err := new(net.ListenConfig).Listen(ctx, "tcp", r.told.Listen)
	if err != nil {
		return "", fmt.Errorf("cannot listen on %s: %w; try another --listen address, or port 0 for any free one", r.told.Listen, err)
	}
	addr = on.Addr().String()
	// A name was checked as a name; the address it led to counts.
	if !listener.IsLoopback(addr) && (certificates == nil || r.told.Identity.Static != nil) {
		return "", errors.Join(fmt.Errorf("refusing to listen on %s, to which %q leads: it is not on loopback; try %s", addr, r.told.Listen, mcp.DefaultListen), on.Close())
	}
	server := listener.HTTPServer(r.connections.Attend(r.handler()), r.connections, r.log)
	server.WriteTimeout = 0 // a stream lasts; each part of it has its time
	r.steps = append(r.steps, func(ctx context.Context) error { return r.drain(ctx, server) })
	go func() {
		if err := certificates.Serve(server, on); !errors.Is(err, http.ErrServerClosed) {
			r.log.Error("serving ended", "error", err)
			r.failed <- err
		}
	}()
	r.log.Info("serving", "address", addr, "resource", r.told.Resource, "tls", certificates != nil)
	return addr, nil
}

// watchCertificate tells of the end of the certificate, in metrics and in the log.
func (r *running) watchCertificate(c *listener.Certificates) error {
	if c == nil {
		return nil
	}
	registration, err := r.telemetry.ObserveCertificate(c.NotAfter)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	r.steps = append(r.steps, func(context.Context) error {
		stop()
		return registration.Unregister()
	})
	go c.Watch(ctx)
	return nil
}

// answersWithin is how long a stop waits for answers that have begun. Streams that never end are cut off after it.
const answersWithin = 5 * time.Second

func (r *running) drain(ctx context.Context, server *http.Server) error {
	server.SetKeepAlivesEnabled(false)
	r.gateway.Drain()
	r.connections.Drain(ctx)
	ctx, cancel := context.WithTimeout(ctx, answersWithin)
	defer cancel()
	if server.Shutdown(ctx) == nil {
		return nil
	}
	return server.Close()
}

func (r *running) tlsFiles() listener.TLSFiles {
	t := r.told.TLS
	return listener.TLSFiles{CertFile: t.CertFile, KeyFile: t.KeyFile, MinVersion: t.MinVersion}
}

// refused prints the problems of the bundle of the PDP in the process, if they are why the gateway did not start.
func refused(told mcp.Config, err error, s cli.Streams) error {
	if e := told.PDP.Embedded; e != nil {
		return bundledir.Refused(e.Policies, err, s)
	}
	return err
}
