package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/otlptranslator"
	"go.opentelemetry.io/contrib/instrumentation/runtime"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
)

// telemetryStopsWithin is what a stop waits for a receiver to take what was not yet sent.
const telemetryStopsWithin = 3 * time.Second

// openTelemetry makes what takes traces and metrics, unless the configuration brought it.
// Metrics are for /metrics always. Both go over OTLP where the environment variables of
// OpenTelemetry name a receiver; what is wrong with one of them keeps the server from
// starting, because OpenTelemetry itself would go on with a default.
func (s *Server) openTelemetry(ctx context.Context) error {
	traces, err := otlpWanted("TRACES", s.config.Program.TracerProvider != nil)
	if err != nil {
		return err
	}
	metrics, err := otlpWanted("METRICS", s.config.Program.MeterProvider != nil)
	if err != nil {
		return err
	}
	var said *listener
	if traces != "" || metrics != "" {
		said = listen(s.log)
	}
	from, err := s.ourselves(ctx)
	if err != nil {
		return err
	}
	s.teardown.add("telemetry", s.endTelemetry)
	if traces != "" {
		err = s.openTraces(ctx, from)
	}
	if s.config.Program.MeterProvider == nil {
		err = errors.Join(err, s.openMetrics(ctx, from, metrics != ""))
	}
	if said != nil {
		err = errors.Join(err, said.mistakes())
	}
	if err != nil {
		return err
	}
	if s.config.Program.TracerProvider != nil {
		s.tracer = s.config.Program.TracerProvider.Tracer(scopeName)
	}
	if traces != "" || metrics != "" {
		s.log.Info("telemetry is sent over OTLP", "traces", traces, "metrics", metrics)
	}
	s.meters, err = newMeters(s.config.Program.MeterProvider.Meter(scopeName))
	s.door.Options.Meters = s.meters
	return err
}

// openTraces makes the tracer. Which traces are taken is what OTEL_TRACES_SAMPLER says, and the SDK reads.
func (s *Server) openTraces(ctx context.Context, from *resource.Resource) error {
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return errors.New("traces cannot be sent by what the environment variables OTEL_EXPORTER_OTLP_… say; see to them") // the cause may quote one
	}
	provider := trace.NewTracerProvider(trace.WithBatcher(spans{exporter, &receiverState{what: "traces", log: s.log}}), trace.WithResource(from))
	s.providers = append(s.providers, provider)
	s.config.Program.TracerProvider = provider
	return nil
}

// openMetrics makes what is counted readable at /metrics, and sends it where somebody wants that.
func (s *Server) openMetrics(ctx context.Context, from *resource.Resource, send bool) error {
	// A registry of our own: whatever else the process counts is not ours to show.
	registry := prometheus.NewRegistry()
	pull, err := otelprometheus.New(otelprometheus.WithRegisterer(registry), otelprometheus.WithoutScopeInfo(),
		otelprometheus.WithTranslationStrategy(otlptranslator.UnderscoreEscapingWithSuffixes))
	if err != nil {
		return fmt.Errorf("cannot make /metrics: %w", err)
	}
	// Prometheus keeps names that end in _count for histograms and summaries.
	goroutines := metric.NewView(metric.Instrument{Name: "go.goroutine.count"}, metric.Stream{Name: "go.goroutines"})
	readers := []metric.Option{metric.WithResource(from), metric.WithReader(pull), metric.WithView(goroutines)}
	if send {
		exporter, err := otlpmetrichttp.New(ctx)
		if err != nil {
			return errors.New("metrics cannot be sent by what the environment variables OTEL_EXPORTER_OTLP_… say; see to them") // the cause may quote one
		}
		readers = append(readers, metric.WithReader(metric.NewPeriodicReader(points{exporter, &receiverState{what: "metrics", log: s.log}})))
	}
	provider := metric.NewMeterProvider(readers...)
	s.providers = append(s.providers, provider)
	s.config.Program.MeterProvider = provider
	// What can be said is said, also where one thing cannot.
	s.scrape = promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError, ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelWarn)})
	// By default memory and goroutines may be those of 15 seconds ago.
	return runtime.Start(runtime.WithMeterProvider(provider), runtime.WithMinimumReadMemStatsInterval(time.Second))
}

// endTelemetry sends what was not yet sent. No receiver can hold the stop up for long, nor
// make it fail: what it was to get is lost, and nothing else.
func (s *Server) endTelemetry(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.config.Program.stopsWithin(telemetryStopsWithin))
	defer cancel()
	var all sync.WaitGroup
	for _, provider := range s.providers {
		all.Go(func() {
			if err := provider.Shutdown(ctx); err != nil {
				s.log.Warn("not all telemetry was taken before the stop")
			}
		})
	}
	all.Wait()
	return nil
}

// ourselves is what we say of ourselves in telemetry, with what the environment says over it.
func (s *Server) ourselves(ctx context.Context) (*resource.Resource, error) {
	from, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithAttributes(semconv.ServiceName("policy-service"), semconv.ServiceVersion(version()), semconv.ServiceInstanceID(s.instance)), resource.WithFromEnv())
	if err != nil {
		return nil, errors.New("the environment variable OTEL_RESOURCE_ATTRIBUTES cannot be read; write name=value,name=value")
	}
	return from, nil
}

// otlpWanted is the receiver of a signal, "" where none is to have it: it is not named, or
// switched off in one of OpenTelemetry's ways, or the embedding program sees to it.
func otlpWanted(signal string, taken bool) (string, error) {
	if taken || strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") {
		return "", nil
	}
	switch name := "OTEL_" + signal + "_EXPORTER"; os.Getenv(name) {
	case "none":
		return "", nil
	case "", "otlp":
	default:
		return "", fmt.Errorf("the environment variable %s names an exporter that there is not; set it to otlp or none", name)
	}
	return otlpReceiver(signal)
}

// otlpReceiver is the host that the variables name for a signal: LOGS, METRICS or TRACES; "" is none.
func otlpReceiver(signal string) (string, error) {
	endpoint := ""
	for _, name := range []string{"OTEL_EXPORTER_OTLP_" + signal + "_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"} {
		v := os.Getenv(name)
		if v == "" || endpoint != "" {
			continue
		}
		u, err := url.Parse(v)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return "", fmt.Errorf("the environment variable %s is no address; write it like https://collector.example:4318", name)
		}
		endpoint = u.Scheme + "://" + u.Host
	}
	if endpoint == "" {
		return "", nil
	}
	for _, name := range []string{"OTEL_EXPORTER_OTLP_" + signal + "_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"} {
		if v := os.Getenv(name); v != "" && v != "http/protobuf" {
			return "", fmt.Errorf("only http/protobuf is spoken, and the environment variable %s says otherwise; set it to that, with the endpoint for it", name)
		}
	}
	return endpoint, nil
}

// spans and points are exporters whose errors are told in words of ours: those of a
// receiver may quote what it was sent, a key too.
type (
	spans struct {
		trace.SpanExporter
		state *receiverState
	}
	points struct {
		metric.Exporter
		state *receiverState
	}
)

// ExportSpans implements [trace.SpanExporter].
func (e spans) ExportSpans(ctx context.Context, all []trace.ReadOnlySpan) error {
	e.state.took(e.SpanExporter.ExportSpans(ctx, all))
	return nil
}

// Export implements [metric.Exporter].
func (e points) Export(ctx context.Context, all *metricdata.ResourceMetrics) error {
	e.state.took(e.Exporter.Export(ctx, all))
	return nil
}

// receiverState tells when a receiver does not take a signal, now and then, and when it does again.
type receiverState struct {
	what    string
	log     *slog.Logger
	failed  seldom
	failing bool
}

// took is called by one goroutine after the other.
func (r *receiverState) took(err error) {
	if err = sendError(err, 0); err == nil {
		if r.failing {
			r.failing = false
			r.log.Info("telemetry is taken again", "of", r.what)
		}
		return
	}
	if r.failed.now() {
		r.failing = true
		r.log.Warn("telemetry is not taken; decisions are made all the same", "of", r.what, "error", err)
	}
}

// MetricsHandler answers with all metrics in the text format of Prometheus, to whoever asks:
// who may is for whoever mounts it to know. It is nil before [Server.Start], and where
// the metrics go to a MeterProvider of the configuration.
func (s *Server) MetricsHandler() http.Handler { return s.scrape }
