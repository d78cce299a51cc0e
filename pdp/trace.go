package pdp

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	otelcodes "go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"policy-service/evaluation"
)

// scopeName names this package in traces as the origin of its steps.
const scopeName = "policy-service/pdp"

// startStep begins a step of a request. If the context has a span, the step goes to the same place
// as the span. So a PDP needs no configuration for traces. If the context has no span, a step
// costs only a look into the context.
func startStep(ctx context.Context, name string) (context.Context, trace.Span) {
	if of := trace.SpanFromContext(ctx); of.IsRecording() {
		return of.TracerProvider().Tracer(scopeName).Start(ctx, name)
	}
	return ctx, noop.Span{}
}

// endStep ends a step. The text of an error may quote a value, so it is left out.
func endStep(span trace.Span, err error) {
	if err != nil {
		span.SetStatus(otelcodes.Error, "")
	}
	span.End()
}

// describeDecision adds the decision to a span. It uses only words that this program defines.
func describeDecision(span trace.Span, d *evaluation.Decision) {
	if !span.IsRecording() {
		return
	}
	answer := "deny"
	switch {
	case d.Allow:
		answer = "allow"
	case d.Possible == evaluation.Possible:
		answer = "possible"
	case d.Possible == evaluation.Impossible:
		answer = "impossible"
	}
	span.SetAttributes(
		attribute.String("policy_service.decision", answer),
		attribute.Int("policy_service.policy_errors", len(d.Errors)),
	)
	if d.Reason != "" {
		span.SetAttributes(attribute.String("policy_service.reason", string(d.Reason)))
	}
}
