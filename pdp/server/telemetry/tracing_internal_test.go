package telemetry

import (
	"net/http"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/trace"
)

func TestTraceID(t *testing.T) {
	t.Parallel()
	const id, rest = "4bf92f3577b34da6a3ce929d0e0e4736", "-00f067aa0ba902b7-01"
	for header, want := range map[string]string{
		"00-" + id + rest: id, "01-" + id + rest + "-more": id, "00-" + id + rest + "-more": "", "ff-" + id + rest: "", "": "", "x": "",
		"00-" + strings.Repeat("0", 32) + rest: "", "00-" + strings.ToUpper(id) + rest: "", "00-" + id[1:] + rest: "",
	} {
		if got := TraceID(t.Context(), http.Header{"Traceparent": {header}}); got != want {
			t.Errorf("%s: got %q, want %q", header, got, want)
		}
	}
	if got := TraceID(t.Context(), http.Header{"Traceparent": {"00-" + id + rest, "00-" + id + rest}}); got != "" {
		t.Errorf("two headers: got %q", got)
	}
}

// A request is asked for its span by this key, so what is kept under it is what OpenTelemetry finds.
func TestSpanKey(t *testing.T) {
	t.Parallel()
	id := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, Remote: true})
	ctx := trace.ContextWithRemoteSpanContext(t.Context(), id)
	if span, is := ctx.Value(SpanKey).(trace.Span); !is || !id.IsValid() || !span.SpanContext().Equal(id) {
		t.Errorf("the context has %v, want the span %v", ctx.Value(SpanKey), id)
	}
	if none := t.Context().Value(SpanKey); none != nil {
		t.Errorf("a context without a span has %v", none)
	}
}
