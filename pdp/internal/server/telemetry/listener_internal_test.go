package telemetry

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"go.opentelemetry.io/otel"
)

// Later errors of OpenTelemetry itself come to the service's log, but for values of variables.
func TestOpenTelemetrySpeaksThroughTheLog(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_CLIENT_KEY", "s3cret")
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "x=1,authorization s3cret2")
	var out bytes.Buffer
	l := listen(slog.New(slog.NewTextHandler(&out, nil)))
	if err := l.mistakes(); err != nil {
		t.Fatal(err)
	}
	otel.Handle(errors.New("the queue is full"))
	otel.Handle(errors.New("invalid OTEL_EXPORTER_OTLP_HEADERS value authorization s3cret: invalid header: authorization s3cret"))
	otel.Handle(errors.New("failed to load TLS: open s3cret: no such file"))
	otel.Handle(errors.New("escape header value: authorization s3cret2"))
	got := out.String()
	for _, want := range []string{"the queue is full", "name=\"OTEL_EXPORTER_OTLP_HEADERS, ", "OTEL_EXPORTER_OTLP_CLIENT_KEY"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in %s", want, got)
		}
	}
	if strings.Contains(got, "s3cret") {
		t.Error(got)
	}
}
