package mcp

import (
	"net/http"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient"
)

// withTraces carries requests to the PDP by a transport, with the trace that they belong to.
func withTraces(by http.RoundTripper) http.RoundTripper {
	if direct, ok := by.(authzenclient.Direct); ok {
		return directTracing{tracing{by}, direct}
	}
	return tracing{by}
}

type tracing struct{ next http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (t tracing) RoundTrip(r *http.Request) (*http.Response, error) {
	return t.next.RoundTrip(withTrace(r))
}

type directTracing struct {
	tracing
	direct authzenclient.Direct
}

// RoundTripRequest implements [authzenclient.Direct].
func (t directTracing) RoundTripRequest(r *http.Request, q evaluation.Request) (*http.Response, error) {
	return t.direct.RoundTripRequest(withTrace(r), q)
}

func withTrace(r *http.Request) *http.Request {
	if trace.SpanContextFromContext(r.Context()).IsValid() {
		r = r.Clone(r.Context())
		propagation.TraceContext{}.Inject(r.Context(), propagation.HeaderCarrier(r.Header))
	}
	return r
}
