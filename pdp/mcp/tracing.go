package mcp

import (
	"net/http"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// tracing carries requests to the PDP by another transport, with the trace that they belong to.
type tracing struct{ next http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (t tracing) RoundTrip(r *http.Request) (*http.Response, error) {
	if trace.SpanContextFromContext(r.Context()).IsValid() {
		r = r.Clone(r.Context())
		propagation.TraceContext{}.Inject(r.Context(), propagation.HeaderCarrier(r.Header))
	}
	return t.next.RoundTrip(r)
}
