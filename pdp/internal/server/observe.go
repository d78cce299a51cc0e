package server

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/door"
	"policy-service/pdp/internal/server/listener"
	"policy-service/pdp/internal/server/telemetry"
	"policy-service/pdp/internal/version"
)

// openTelemetry makes the receivers of traces and metrics, unless the program has its own.
func (b *base) openTelemetry(ctx context.Context) error {
	p := &b.config.Program
	t, err := telemetry.Open(ctx, telemetry.Options{
		Version:        version.This().Version,
		Instance:       uuid.NewString(),
		MeterProvider:  p.MeterProvider,
		TracerProvider: p.TracerProvider,
		Untraced:       []string{"/livez", "/readyz", metricsPath},
		Log:            b.log,
		StopsWithin:    p.stopsWithin(telemetry.StopsWithin),
	})
	if err != nil {
		return err
	}
	b.telemetry, b.door.Options.Meters = t, &t.Requests
	b.lifetime.add("telemetry", t.Close)
	return nil
}

// showState has metrics show the state of the service, from now until it stops.
func showState(b *base, state func() telemetry.State, c *listener.Certificates) error {
	registration, err := b.telemetry.Observe(state)
	if err != nil {
		return err
	}
	// What the state is made of is taken down before the metrics are sent for the last time.
	b.lifetime.add("state in metrics", closing(registration.Unregister))
	if c != nil {
		if registration, err = b.telemetry.ObserveCertificate(c.NotAfter); err != nil {
			return err
		}
		b.lifetime.add("certificate in metrics", closing(registration.Unregister))
		b.lifetime.background("certificate's end", c.Watch)
	}
	return nil
}

func (s *Server) state() telemetry.State {
	bundle := s.policies.Status()
	state := telemetry.State{
		Exports:       s.audit.Exports.Inside(),
		Bundle:        bundle.Digest,
		OnDisk:        bundle.OnDisk,
		Unavailable:   len(s.policies.Bundle().Unavailable()),
		BundleAge:     s.now().Sub(bundle.LoadedAt),
		BundleRefused: bundle.Refused != nil,
	}
	if s.keys.api != nil {
		state.KeysRefused = s.keys.api.Refused()
	}
	if s.decisions != nil {
		log := s.decisions.Status()
		state.Log = &log
		if w := s.decisions.witnesses; w != nil {
			now := w.Status()
			state.Witnesses, state.QuorumAge = &now, s.now().Sub(now.Quorum)
		}
	}
	state.Cluster = s.replica.metrics()
	if state.Cluster != nil && !state.Cluster.OK {
		return state // nothing can be counted
	}
	if s.approvals.Broker != nil {
		pending := s.approvals.Broker.Store.Pending()
		state.Pending = &pending
	}
	if s.capabilities.Broker != nil {
		live, err := s.capabilities.Broker.Store.Live()
		if err == nil {
			state.Live = &live
		} else {
			s.log.Error("the live capabilities cannot be counted, and are left out of the metrics", "error", err)
		}
	}
	return state
}

// metricsPath is where Prometheus looks.
const metricsPath = "/metrics"

// MetricsConfig says which scrapers read the metrics, besides callers.
type MetricsConfig struct {
	TokenFile string `yaml:"token_file" doc:"The file with a bearer token of at least 32 bytes, by which a scraper may read /metrics, and nothing else. A changed file takes effect at once."`
}

// check says why there is no token in the file.
func (m MetricsConfig) check() error {
	if err := auth.TokenFile(m.TokenFile).Check(); err != nil {
		return fmt.Errorf("metrics.token_file: %w", err)
	}
	return nil
}

// scraper is the holder of the token, at the only route that takes it.
var scraper = auth.Caller{Name: "metrics", AllTenants: true, Permissions: []auth.Permission{auth.Explain}}

// scrapes is the route GET /metrics.
type scrapes struct {
	*base
	tokenLost atomic.Bool // the file of the token cannot be read, and that was logged
}

// scraper is the caller of a request that brings the token, and nil if it does not.
func (s *scrapes) scraper(r *http.Request) *auth.Caller {
	fits, err := auth.TokenFile(s.live.pinned(r.Context()).config.Metrics.TokenFile).Fits(r)
	if err != nil && !s.tokenLost.Swap(true) { // once, because anybody can ask
		s.log.Error("metrics.token_file has no usable token, and no scraper is let in by it until it does", "error", err)
	}
	if err != nil || !fits {
		return nil
	}
	s.tokenLost.Store(false)
	return &scraper
}

// Routes registers the route. It is about all tenants, so the callers who may see it are those who may see the details of
// /readyz.
func (s *scrapes) Routes(route registrar) {
	scrape := s.telemetry.Scrape
	route(metricsPath, func(c echo.Context) error {
		need := door.Need{
			Known:      s.scraper,
			Permission: auth.Explain,
			AllTenants: "metrics are of all tenants; ask the operator for a credential that is for all",
		}
		if scrape == nil {
			need.Absent = door.NewProblem(http.StatusNotFound, "the program that this service is part of takes its metrics; ask that")
		}
		if _, err := s.door.Admit(c, need); err != nil {
			return err
		}
		scrape.ServeHTTP(c.Response(), c.Request())
		return nil
	}, http.MethodGet)
}

// MetricsHandler answers with all metrics in the text format of Prometheus, and asks for no
// credential. It is nil before [Server.Start], and if the metrics go to [Program.MeterProvider].
func (s *Server) MetricsHandler() http.Handler { return s.telemetry.Scrape }
