package telemetry

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploghttp"
	"go.opentelemetry.io/otel/log"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
)

// Records sends log records over OTLP/HTTP. The exporter reads from the environment variables of
// OpenTelemetry where to, and how. It is for one goroutine.
type Records struct {
	// Logger gathers the records that [Records.Send] sends.
	Logger log.Logger

	exporter sdklog.Exporter
	batch    batch
}

// batch is a processor of the SDK that only gathers. The user of [Records] knows when to send,
// and what to do if that fails.
type batch []sdklog.Record

func (b *batch) OnEmit(_ context.Context, r *sdklog.Record) error {
	*b = append(*b, r.Clone())
	return nil
}
func (*batch) Enabled(context.Context, sdklog.EnabledParameters) bool { return true }
func (*batch) Shutdown(context.Context) error                         { return nil }
func (*batch) ForceFlush(context.Context) error                       { return nil }

// OpenRecords makes the exporter. After a failed attempt, if the receiver asks to be tried again, the exporter
// waits for pause, and longer each further time, as long as the context of [Records.Send] lasts; every other
// failure is the caller's business.
func (t *Telemetry) OpenRecords(ctx context.Context, pause time.Duration) (*Records, error) {
	endpoint, err := receiver("LOGS")
	switch {
	case err != nil:
		return nil, err
	case endpoint == "": // the exporter would take its default, and records must not go where no operator said
		return nil, errors.New("the sink otlp does not know where to send records; " +
			"set OTEL_EXPORTER_OTLP_ENDPOINT, like https://collector.example:4318")
	}
	said := listen(t.options.Log)
	retry := otlploghttp.RetryConfig{Enabled: true, InitialInterval: pause, MaxInterval: 5 * time.Second}
	exporter, err := otlploghttp.New(ctx, otlploghttp.WithRetry(retry))
	if err != nil { // which is left out: it may quote a variable
		return nil, errors.New("the sink otlp cannot be made of the environment variables OTEL_EXPORTER_OTLP_…; " +
			"see to them")
	}
	from, err := t.resource(ctx)
	if err != nil {
		return nil, err
	}
	r := &Records{exporter: exporter}
	provider := sdklog.NewLoggerProvider(sdklog.WithProcessor(&r.batch), sdklog.WithResource(from))
	r.Logger = provider.Logger(scopeName, log.WithSchemaURL(semconv.SchemaURL))
	if err := said.mistakes(); err != nil {
		return nil, err
	}
	t.options.Log.Info("records are sent over OTLP", "to", endpoint)
	return r, nil
}

// Send sends the records that were gathered, all in one request, and gathers anew. Its error is a [Refusal] if
// it is no use to try again.
func (r *Records) Send(ctx context.Context) error {
	err := r.exporter.Export(ctx, r.batch)
	sent := len(r.batch)
	clear(r.batch)
	r.batch = r.batch[:0]
	return sendError(err, sent)
}
