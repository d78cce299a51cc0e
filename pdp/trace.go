package pdp

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	otelcodes "go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"policy-service/evaluation"
)

// scopeName says in traces that a step is ours.
const scopeName = "policy-service/pdp"

var untraced trace.Span = noop.Span{}

// step begins a step of a request. Whoever wants steps puts a span into the context, and
// they go where that goes: a PDP needs no configuration for it, and where nobody
// looks a step costs a look into the context.
func step(ctx context.Context, name string) (context.Context, trace.Span) {
	if of := trace.SpanFromContext(ctx); of.IsRecording() {
		return of.TracerProvider().Tracer(scopeName).Start(ctx, name)
	}
	return ctx, untraced
}

// ended ends a step. The text of an error may quote a value, so it is left out.
func ended(span trace.Span, err error) {
	if err != nil {
		span.SetStatus(otelcodes.Error, "")
	}
	span.End()
}

// decided says what was decided, in words of ours alone.
func decided(span trace.Span, d evaluation.Decision) {
	if !span.IsRecording() {
		return
	}
	answer := "deny"
	if d.Allow {
		answer = "allow"
	}
	span.SetAttributes(attribute.String("policy_service.decision", answer), attribute.Int("policy_service.policy_errors", len(d.Errors)))
	if d.Reason != "" {
		span.SetAttributes(attribute.String("policy_service.reason", string(d.Reason)))
	}
}
