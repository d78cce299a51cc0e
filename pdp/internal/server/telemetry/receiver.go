package telemetry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// wanted is the receiver of a signal. It is "" if there is none: the environment names none or switches the signal off, or
// the embedding program takes it. The exporters read the rest from their variables.
func wanted(signal string, taken bool) (string, error) {
	name := "OTEL_" + signal + "_EXPORTER"
	exporter := os.Getenv(name)
	switch {
	case taken, strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true"), exporter == "none":
		return "", nil
	case exporter != "" && exporter != "otlp":
		return "", fmt.Errorf("the environment variable %s names an exporter that there is not; set it to otlp or none", name)
	}
	return receiver(signal)
}

// receiver is the host that the variables name for a signal, which is LOGS, METRICS or TRACES; "" if they name none. An
// exporter would take localhost for none, pass over an address that is none, and speak HTTP for gRPC.
func receiver(signal string) (string, error) {
	name, endpoint := variable(signal, "ENDPOINT")
	if endpoint == "" {
		return "", nil
	}
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", fmt.Errorf("the environment variable %s is no address; write it like https://collector.example:4318", name)
	}
	if name, protocol := variable(signal, "PROTOCOL"); protocol != "" && protocol != "http/protobuf" {
		return "", fmt.Errorf("only http/protobuf is spoken, and the environment variable %s says otherwise; set it to that, with the endpoint for it", name)
	}
	return u.Scheme + "://" + u.Host, nil
}

// variable is the variable that counts for a signal, with its value.
func variable(signal, of string) (name, value string) {
	for _, name = range []string{"OTEL_EXPORTER_OTLP_" + signal + "_" + of, "OTEL_EXPORTER_OTLP_" + of} {
		if value = os.Getenv(name); value != "" {
			break
		}
	}
	return name, value
}

// spans and points are exporters whose errors are logged in our words. The words of a receiver may quote the request, a
// key too.
type (
	spans struct {
		sdktrace.SpanExporter
		state *receiverState
	}
	points struct {
		sdkmetric.Exporter
		state *receiverState
	}
)

// ExportSpans implements [sdktrace.SpanExporter].
func (e spans) ExportSpans(ctx context.Context, all []sdktrace.ReadOnlySpan) error {
	e.state.took(e.SpanExporter.ExportSpans(ctx, all))
	return nil
}

// Export implements [sdkmetric.Exporter].
func (e points) Export(ctx context.Context, all *metricdata.ResourceMetrics) error {
	e.state.took(e.Exporter.Export(ctx, all))
	return nil
}

// receiverState logs when a receiver does not take a signal, now and then, and when it takes the
// signal again.
type receiverState struct {
	what   string
	log    *slog.Logger
	failed Seldom
}

// took logs the result of an export, good or bad, if it is time to. No two calls run at once.
func (r *receiverState) took(err error) {
	err = sendError(err, 0)
	switch {
	case !r.failed.Tells(err):
	case err == nil:
		r.log.Info("telemetry is taken again", "of", r.what)
	default:
		r.log.Warn("telemetry is not taken; decisions are made all the same", "of", r.what, "error", err)
	}
}

// seldom is how often the same trouble is logged at most.
const seldom = time.Minute

// Seldom keeps the same trouble from being logged again and again. The zero value is ready.
type Seldom struct {
	last    time.Time
	failing bool // a failure was logged, and its end was not
}

// Now reports whether it is time to log the trouble, and takes it that the caller does so.
func (s *Seldom) Now() bool {
	if !s.last.IsZero() && time.Since(s.last) < seldom {
		return false
	}
	s.last = time.Now()
	return true
}

// Tells reports whether the result of an attempt is to be logged: a failure now and then, and once that it is over.
func (s *Seldom) Tells(err error) bool {
	if err == nil {
		over := s.failing
		s.failing = false
		return over
	}
	now := s.Now()
	s.failing = s.failing || now
	return now
}

// Refusal is the error of records that no further attempt would bring through.
type Refusal struct {
	Records int // how many of those that were sent
	Why     string
}

func (r *Refusal) Error() string { return r.Why }

var (
	// finalStatus finds the status in what the exporter makes of a final answer. The words of
	// the receiver come after it.
	finalStatus = regexp.MustCompile(`: (\d{3} [A-Za-z ]*)\(body: `)
	// partialSuccess finds how many a receiver did not take of what it took in part. That
	// comes after the words of the receiver.
	partialSuccess = regexp.MustCompile(`(?s)OTLP partial success: .* \((\d+) [a-z ]+ rejected\)$`)
)

// sendError sorts the errors of an exporter: none, one to be tried again, or a [Refusal]. It leaves the words of the
// receiver out: they may quote the request, a key too.
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
		return &Refusal{min(n, records), "the receiver refused some"}
	}
	if m := finalStatus.FindStringSubmatch(err.Error()); m != nil {
		return &Refusal{records, "the receiver answered " + m[1]}
	}
	return &Refusal{records, "they cannot be sent, or the answer of the receiver cannot be read"}
}
