package gate

import (
	"context"
	"net/http"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"policy-service/pdp/mcp/internal/rpc"
)

// One trace goes from the agent to the PDP and to the server. Where it comes from and where it goes is in W3C's header over
// HTTP, and in _meta of a message.

// ScopeName names the gateway in telemetry.
const ScopeName = "policy-service/pdp/mcp"

var w3c propagation.TraceContext

// follow has ctx go on with the trace that a request names, if whoever serves it has not begun a span.
func follow(ctx context.Context, h http.Header) context.Context {
	if trace.SpanContextFromContext(ctx).IsValid() {
		return ctx
	}
	return w3c.Extract(ctx, propagation.HeaderCarrier(h))
}

// endStep ends a step. It says what was done and how that ended, and nothing that was sent.
func endStep(span trace.Span, outcome string) {
	defer span.End()
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(attribute.String("policy_service.mcp.outcome", outcome))
	if outcome == outcomeFailed {
		span.SetStatus(codes.Error, "")
	}
}

// traced is _meta with the trace of ctx in it, for whoever the message goes to. Without one it is as it was.
func traced(ctx context.Context, meta rpc.Object) rpc.Object {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return meta
	}
	said := propagation.MapCarrier{}
	w3c.Inject(ctx, said)
	meta = meta.Without(func(name string) bool { return name == "traceparent" || name == "tracestate" })
	for _, name := range w3c.Fields() {
		if v := said.Get(name); v != "" {
			meta = meta.With(name, rpc.String(v))
		}
	}
	return meta
}
