package telemetry

import (
	"context"
	"log/slog"
	"net/http"
	"slices"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

var (
	untraced trace.Span = noop.Span{}
	inbound             = trace.WithSpanKind(trace.SpanKindServer)
)

// Begin begins the span of a request, a child of the client's span if the request names one. It
// returns the request with the span in its context, and says in the header of the answer which
// span it is. Without a tracer it does nothing: not even the context is touched.
func (t *Telemetry) Begin(r *http.Request, answer http.Header) (*http.Request, trace.Span) {
	if t.tracer == nil || slices.Contains(t.options.Untraced, r.URL.Path) {
		return r, untraced
	}
	ctx := r.Context()
	if parent := parentOf(r.Header); parent.IsValid() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, parent)
	}
	ctx, span := t.tracer.Start(ctx, MethodOf(r.Method), inbound)
	if span.IsRecording() {
		answer.Set("Traceresponse", header(span.SpanContext()))
	}
	return r.WithContext(ctx), span
}

// End ends the span of a request. The route is a pattern: no attribute is anything that was sent.
// A request without an answer was cut off.
func End(span trace.Span, method, route string, status int, answered bool) {
	defer span.End()
	if !span.IsRecording() {
		return
	}
	method = MethodOf(method)
	span.SetName(method + " " + route)
	span.SetAttributes(
		attribute.String("http.request.method", method),
		attribute.String("http.route", route),
		attribute.Int("http.response.status_code", status),
	)
	if !answered || status >= http.StatusInternalServerError {
		span.SetStatus(codes.Error, "")
	}
}

// MethodOf is a method that some route serves, or OpenTelemetry's word for all others.
func MethodOf(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost:
		return method
	}
	return "_OTHER"
}

// Stage begins a step of a request. If the request is not traced it costs next to nothing.
func Stage(ctx context.Context, name string) trace.Span {
	if of := trace.SpanFromContext(ctx); of.IsRecording() {
		_, span := of.TracerProvider().Tracer(scopeName).Start(ctx, name)
		return span
	}
	return untraced
}

// EndStage ends a step. The text of an error may quote a value, so it is left out.
func EndStage(span trace.Span, err error) {
	if err != nil {
		span.SetStatus(codes.Error, "")
	}
	span.End()
}

// parentOf is the span that a request says it belongs to (W3C Trace Context); none if the header
// is not legal. The header tracestate is left out: it is free text of the client, which would be
// in every span, and in the form of another tracer.
func parentOf(h http.Header) trace.SpanContext {
	headers := h.Values("Traceparent")
	if len(headers) != 1 {
		return trace.SpanContext{}
	}
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{"traceparent": headers[0]})
	return trace.SpanContextFromContext(ctx)
}

func header(of trace.SpanContext) string {
	return "00-" + of.TraceID().String() + "-" + of.SpanID().String() + "-" + of.TraceFlags().String()
}

// TraceID is the trace that a request is traced in. If it is not traced here, that is the trace
// that the request says it belongs to; "" for none.
func TraceID(ctx context.Context, sent http.Header) string {
	of := trace.SpanContextFromContext(ctx)
	if !of.IsValid() {
		of = parentOf(sent)
	}
	if !of.IsValid() {
		return ""
	}
	return of.TraceID().String()
}

// LogContext is the context of a log line about a request. It has the span of the request, or the
// client's span if the request is not traced here.
func LogContext(r *http.Request) context.Context {
	ctx := r.Context()
	if trace.SpanContextFromContext(ctx).IsValid() {
		return ctx
	}
	return trace.ContextWithRemoteSpanContext(ctx, parentOf(r.Header))
}

// Correlated adds to a log line the trace and the span of its context.
type Correlated struct{ slog.Handler }

// Handle implements [slog.Handler].
func (h Correlated) Handle(ctx context.Context, r slog.Record) error {
	if of := trace.SpanContextFromContext(ctx); of.IsValid() {
		r = r.Clone()
		r.AddAttrs(slog.String("trace_id", of.TraceID().String()), slog.String("span_id", of.SpanID().String()))
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements [slog.Handler].
func (h Correlated) WithAttrs(attrs []slog.Attr) slog.Handler {
	return Correlated{h.Handler.WithAttrs(attrs)}
}

// WithGroup implements [slog.Handler].
func (h Correlated) WithGroup(name string) slog.Handler {
	return Correlated{h.Handler.WithGroup(name)}
}
