// Package telemetry is how the service is seen from outside: what it counts, the traces of its
// requests, and where both go. Begin with [Open], which makes a [Telemetry] from [Options] and
// the environment variables of OpenTelemetry. The server counts with its [Meters], gives it a
// function that returns the [State] of the service when metrics are read, and asks it for the
// span of every request.
//
// Metrics can always be read in the text format of Prometheus, from [Telemetry.Scrape]. Metrics
// and traces are also sent over OTLP if the environment variables name a receiver. [Records]
// sends the records of the decision log the same way.
//
// This is the only package that imports the SDK of OpenTelemetry, its exporters and Prometheus.
// It refuses three things. No attribute of a metric or a span is anything that a client sent.
// No error of a receiver is passed on in the receiver's words, which may quote a key. And no
// environment variable that cannot be read is passed over: it keeps the server from starting,
// because OpenTelemetry itself would go on with a default.
package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/otlptranslator"
	"go.opentelemetry.io/contrib/instrumentation/runtime"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// scopeName is the name of this service in telemetry.
const scopeName = "policy-service"

// StopsWithin is how long [Telemetry.Close] usually waits for a receiver to take the rest.
const StopsWithin = 3 * time.Second

// Options are the parts of a [Telemetry].
type Options struct {
	// Version and Instance say which program this is, and which run of it.
	Version, Instance string
	// MeterProvider takes the metrics. If it is nil the package makes one.
	MeterProvider metric.MeterProvider
	// TracerProvider takes the traces. If it is nil the package makes one, if the environment
	// names a receiver.
	TracerProvider trace.TracerProvider
	// Untraced are paths whose requests have no span: machines ask for them again and again.
	Untraced []string
	// Log takes the messages for the operator.
	Log *slog.Logger
	// StopsWithin bounds [Telemetry.Close].
	StopsWithin time.Duration
}

// Telemetry is the telemetry of one run of the service.
type Telemetry struct {
	*Meters
	// Meter makes further instruments.
	Meter metric.Meter
	// Scrape answers with all metrics in the text format of Prometheus, and asks for no
	// credential. It is nil if the metrics go to the MeterProvider of the options.
	Scrape http.Handler

	options   Options
	tracer    trace.Tracer // nil if there are no traces
	providers []interface{ Shutdown(context.Context) error }
}

// Silent is a telemetry without readers, for the time before a start.
func Silent() (*Telemetry, error) {
	meter := noop.NewMeterProvider().Meter(scopeName)
	meters, err := NewMeters(meter)
	return &Telemetry{Meters: meters, Meter: meter}, err
}

// Open makes the receivers of traces and metrics, unless the options have them. Metrics can
// always be scraped. Both go over OTLP if the environment variables of OpenTelemetry name a
// receiver.
func Open(ctx context.Context, options Options) (*Telemetry, error) {
	t := &Telemetry{options: options}
	if err := t.open(ctx); err != nil {
		_ = t.Close(context.WithoutCancel(ctx))
		return nil, err
	}
	return t, nil
}

func (t *Telemetry) open(ctx context.Context) error {
	traces, err := wanted("TRACES", t.options.TracerProvider != nil)
	if err != nil {
		return err
	}
	metrics, err := wanted("METRICS", t.options.MeterProvider != nil)
	if err != nil {
		return err
	}
	var said *listener
	if traces != "" || metrics != "" {
		said = listen(t.options.Log)
	}
	from, err := t.resource(ctx)
	if err != nil {
		return err
	}
	if traces != "" {
		err = t.openTraces(ctx, from)
	}
	if t.options.MeterProvider == nil {
		err = errors.Join(err, t.openMetrics(ctx, from, metrics != ""))
	}
	if said != nil {
		err = errors.Join(err, said.mistakes())
	}
	if err != nil {
		return err
	}
	if t.options.TracerProvider != nil {
		t.tracer = t.options.TracerProvider.Tracer(scopeName)
	}
	if traces != "" || metrics != "" {
		t.options.Log.Info("telemetry is sent over OTLP", "traces", traces, "metrics", metrics)
	}
	t.Meter = t.options.MeterProvider.Meter(scopeName)
	t.Meters, err = NewMeters(t.Meter)
	return err
}

// openTraces makes a provider of tracers. The SDK reads from OTEL_TRACES_SAMPLER which traces
// it keeps.
func (t *Telemetry) openTraces(ctx context.Context, from *resource.Resource) error {
	exporter, err := otlptracehttp.New(ctx)
	if err != nil { // left out: it may quote the value of a variable
		return errors.New("traces cannot be sent by what the environment variables OTEL_EXPORTER_OTLP_… say; see to them")
	}
	sent := spans{exporter, &receiverState{what: "traces", log: t.options.Log}}
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(sent), sdktrace.WithResource(from))
	t.providers = append(t.providers, provider)
	t.options.TracerProvider = provider
	return nil
}

// openMetrics makes a provider of meters, whose metrics can be scraped, and sends them if that
// is wanted.
func (t *Telemetry) openMetrics(ctx context.Context, from *resource.Resource, send bool) error {
	// A registry of our own: other metrics of the process are not ours to show.
	registry := prometheus.NewRegistry()
	if err := registry.Register(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})); err != nil {
		return fmt.Errorf("cannot show the process at /metrics: %w", err)
	}
	pull, err := otelprometheus.New(
		otelprometheus.WithRegisterer(registry),
		otelprometheus.WithoutScopeInfo(),
		otelprometheus.WithTranslationStrategy(otlptranslator.UnderscoreEscapingWithSuffixes),
	)
	if err != nil {
		return fmt.Errorf("cannot make /metrics: %w", err)
	}
	// Prometheus keeps names that end in _count for histograms and summaries.
	goroutines := sdkmetric.NewView(
		sdkmetric.Instrument{Name: "go.goroutine.count"}, sdkmetric.Stream{Name: "go.goroutines"})
	readers := []sdkmetric.Option{sdkmetric.WithResource(from), sdkmetric.WithReader(pull), sdkmetric.WithView(goroutines)}
	if send {
		exporter, err := otlpmetrichttp.New(ctx)
		if err != nil { // left out: it may quote the value of a variable
			return errors.New("metrics cannot be sent by what the environment variables OTEL_EXPORTER_OTLP_… say; see to them")
		}
		sent := points{exporter, &receiverState{what: "metrics", log: t.options.Log}}
		readers = append(readers, sdkmetric.WithReader(sdkmetric.NewPeriodicReader(sent)))
	}
	provider := sdkmetric.NewMeterProvider(readers...)
	t.providers = append(t.providers, provider)
	t.options.MeterProvider = provider
	t.Scrape = promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		ErrorHandling: promhttp.ContinueOnError, // one metric that fails hides no other
		ErrorLog:      slog.NewLogLogger(t.options.Log.Handler(), slog.LevelWarn),
	})
	// By default memory and goroutines may be those of 15 seconds ago.
	return runtime.Start(runtime.WithMeterProvider(provider), runtime.WithMinimumReadMemStatsInterval(time.Second))
}

// Providers are where a part of the program counts and traces that does so by itself. The tracer provider is nil if
// there are no traces.
func (t *Telemetry) Providers() (metric.MeterProvider, trace.TracerProvider) {
	return t.options.MeterProvider, t.options.TracerProvider
}

// Close sends the rest. No receiver can hold the stop up for long, or make it fail: the rest is lost then, and nothing
// else.
func (t *Telemetry) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, t.options.StopsWithin)
	defer cancel()
	var all sync.WaitGroup
	for _, provider := range t.providers {
		all.Go(func() {
			if err := provider.Shutdown(ctx); err != nil {
				t.options.Log.Warn("not all telemetry was taken before the stop")
			}
		})
	}
	all.Wait()
	return nil
}

// resource says in telemetry where it comes from. The environment wins over the options.
func (t *Telemetry) resource(ctx context.Context) (*resource.Resource, error) {
	service := resource.WithAttributes(
		semconv.ServiceName("policy-service"),
		semconv.ServiceVersion(t.options.Version),
		semconv.ServiceInstanceID(t.options.Instance),
	)
	from, err := resource.New(ctx, resource.WithTelemetrySDK(), service, resource.WithFromEnv())
	if err != nil {
		return nil, errors.New("the environment variable OTEL_RESOURCE_ATTRIBUTES cannot be read; " +
			"write name=value,name=value")
	}
	return from, nil
}
