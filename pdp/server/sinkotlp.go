package server

import (
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"regexp"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploghttp"
	"go.opentelemetry.io/otel/log"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"policy-service/pdp/decisionlog"
)

// otlp sends records over OTLP/HTTP. Where to, and how, is what the environment
// variables of OpenTelemetry say, which the exporter reads.
type otlp struct {
	exporter sdklog.Exporter
	logger   log.Logger
	batch    batch
	now      func() time.Time
}

// batch is a processor of the SDK that only gathers: when to export, and what to do when
// that fails, the sink knows.
type batch []sdklog.Record

func (b *batch) OnEmit(_ context.Context, r *sdklog.Record) error {
	*b = append(*b, r.Clone())
	return nil
}
func (*batch) Enabled(context.Context, sdklog.EnabledParameters) bool { return true }
func (*batch) Shutdown(context.Context) error                         { return nil }
func (*batch) ForceFlush(context.Context) error                       { return nil }

// newOTLP makes the exporter. What is wrong with a variable keeps the server from
// starting: OpenTelemetry itself would go on with a default.
func (s *Server) newOTLP(ctx context.Context) (func(context.Context, []decisionlog.Record) error, error) {
	endpoint, err := otlpEndpoint()
	if err != nil {
		return nil, err
	}
	said := listen(s.log)
	// What a receiver answers that is to be tried again, or with a time to wait, is the
	// exporter's business, for as long as the attempt lasts; all else is the sink's.
	retry := otlploghttp.RetryConfig{Enabled: true, InitialInterval: sinkAgain, MaxInterval: 5 * time.Second}
	exporter, err := otlploghttp.New(ctx, otlploghttp.WithRetry(retry))
	if err != nil {
		return nil, errors.New("the sink otlp cannot be made of the environment variables OTEL_EXPORTER_OTLP_…; see to them") // the cause may quote one
	}
	from, err := s.ourselves(ctx)
	if err != nil {
		return nil, err
	}
	o := &otlp{exporter: exporter, now: s.now}
	o.logger = sdklog.NewLoggerProvider(sdklog.WithProcessor(&o.batch), sdklog.WithResource(from)).Logger(scopeName, log.WithSchemaURL(semconv.SchemaURL))
	if err := said.mistakes(); err != nil {
		return nil, err
	}
	s.log.Info("records are sent over OTLP", "to", endpoint)
	return o.send, nil
}

// otlpEndpoint is the host that the variables name. Without one the exporter would take
// its default, and a decision log is not to go where nobody said.
func otlpEndpoint() (string, error) {
	endpoint, err := otlpReceiver("LOGS")
	if err == nil && endpoint == "" {
		err = errors.New("the sink otlp does not know where to send records; set OTEL_EXPORTER_OTLP_ENDPOINT, like https://collector.example:4318")
	}
	return endpoint, err
}

// send exports records, all in one request.
func (o *otlp) send(ctx context.Context, records []decisionlog.Record) error {
	o.batch = o.batch[:0]
	for _, r := range records {
		o.emit(r.Line)
	}
	err := o.exporter.Export(ctx, o.batch)
	clear(o.batch)
	return sendError(err, len(records))
}

var (
	// What the exporter makes of an answer that is final has its status in it, and
	// then words of the receiver.
	finalStatus = regexp.MustCompile(`: (\d{3} [A-Za-z ]*)\(body: `)
	// A receiver that took a part says how many it did not take, after words of its own.
	partialSuccess = regexp.MustCompile(`(?s)OTLP partial success: .* \((\d+) [a-z ]+ rejected\)$`)
)

// sendError sorts what the exporter says: nothing, to be tried again, or a refusal.
// Words of a receiver are left out of it: they may quote what it was sent, a key too.
func sendError(err error, records int) error {
	var transport *url.Error
	var network net.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &transport):
		return transport.Err // without the address, a part of which may be a secret
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return errors.New("the receiver does not answer, or says that it takes nothing now")
	case errors.As(err, &network), errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("the connection broke off before the receiver had answered")
	}
	if m := partialSuccess.FindStringSubmatch(err.Error()); m != nil {
		n, _ := strconv.Atoi(m[1])
		return &refusal{min(n, records), "the receiver refused some"}
	}
	if m := finalStatus.FindStringSubmatch(err.Error()); m != nil {
		return &refusal{records, "the receiver answered " + m[1]}
	}
	return &refusal{records, "they cannot be sent, or the answer of the receiver cannot be read"}
}
