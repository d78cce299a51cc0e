// Package traces has one trace go from the agent to the PDP and to the server. Where it comes from and where it goes is in W3C's
// header over HTTP, and in _meta of a message: [Follow] reads it there, and [Traced] writes it.
//
// It begins and ends no span: whoever does something does that.
package traces

import (
	"context"
	"net/http"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"policy-service/pdp/internal/rpc"
)

var w3c propagation.TraceContext

// Follow has ctx go on with the trace that a request names, if whoever serves it has not begun a span.
func Follow(ctx context.Context, h http.Header) context.Context {
	if trace.SpanContextFromContext(ctx).IsValid() {
		return ctx
	}
	return w3c.Extract(ctx, propagation.HeaderCarrier(h))
}

// Traced is _meta with the trace of ctx in it, for whoever the message goes to. Without one it is as it was.
func Traced(ctx context.Context, meta rpc.Object) rpc.Object {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return meta
	}
	said := propagation.MapCarrier{}
	w3c.Inject(ctx, said)
	meta = meta.Without(func(name string) bool { return name == "traceparent" || name == "tracestate" })
	return meta.WithText("traceparent", said["traceparent"]).WithText("tracestate", said["tracestate"])
}
