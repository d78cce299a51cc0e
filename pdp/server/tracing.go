package server

import (
	"context"
	"encoding/hex"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/labstack/echo/v4"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// observe is around everything that happens to a request: it is measured, and where there
// is a tracer it has a span. It is our own and not otelhttp, which would copy the request
// and wrap the answer also where nobody traces, and counts by the Host that was sent.
func (s *Server) observe(known routes) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			begun := time.Now()
			s.meters.active.Add(1)
			span := s.traced(c)
			answered := false // else it panics, to cut the answer off
			defer func() {
				s.meters.active.Add(-1)
				route, status := known.of(c), c.Response().Status
				endRequest(span, c.Request().Method, route, status, answered)
				s.meters.answer(c.Request().Context(), route, status, time.Since(begun))
			}()
			if err := next(c); err != nil {
				c.Error(err) // here, so that the status is known
			}
			answered = true
			return nil
		}
	}
}

// unmatched is the route of requests that have none.
const unmatched = "unmatched"

// routes are the patterns there are. Nothing else may become an attribute: a path is
// the caller's.
type routes map[string]bool

func (r routes) of(c echo.Context) string {
	if path := c.Path(); r[path] {
		return path
	}
	return unmatched
}

// untold are asked again and again by machines, and nobody wants to find them among traces.
var untold = []string{"/livez", "/readyz", metricsPath}

var (
	untraced trace.Span = noop.Span{}
	inbound             = trace.WithSpanKind(trace.SpanKindServer)
)

// traced begins the span of a request, a child of the caller's where it says so. Without a
// tracer it does nothing: not even the context is touched.
func (s *Server) traced(c echo.Context) trace.Span {
	r := c.Request()
	if s.tracer == nil || slices.Contains(untold, r.URL.Path) {
		return untraced
	}
	ctx := r.Context()
	if parent := parentOf(r.Header); parent.IsValid() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, parent)
	}
	ctx, span := s.tracer.Start(ctx, methodOf(r.Method), inbound)
	c.SetRequest(r.WithContext(ctx))
	if span.IsRecording() {
		c.Response().Header().Set("Traceresponse", header(span.SpanContext()))
	}
	return span
}

// endRequest says how it went. No attribute is anything that was sent.
func endRequest(span trace.Span, method, route string, status int, answered bool) {
	defer span.End()
	if !span.IsRecording() {
		return
	}
	method = methodOf(method)
	span.SetName(method + " " + route)
	span.SetAttributes(attribute.String("http.request.method", method), attribute.String("http.route", route), attribute.Int("http.response.status_code", status))
	if !answered || status >= http.StatusInternalServerError {
		span.SetStatus(codes.Error, "")
	}
}

// methodOf is a method that is served somewhere, or what OpenTelemetry calls all others.
func methodOf(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost:
		return method
	}
	return "_OTHER"
}

// stage begins a step of a request where that is traced, and costs next to nothing where not.
func stage(c echo.Context, name string) trace.Span {
	ctx := c.Request().Context()
	if of := trace.SpanFromContext(ctx); of.IsRecording() {
		_, span := of.TracerProvider().Tracer(scopeName).Start(ctx, name)
		return span
	}
	return untraced
}

// ended ends a step. The text of an error may quote a value, so it is left out.
func ended(span trace.Span, err error) {
	if err != nil {
		span.SetStatus(codes.Error, "")
	}
	span.End()
}

// parentOf is the span a request says it belongs to (W3C Trace Context), none where it says
// so in no legal way. What tracestate says is left behind: it is free text of the
// caller's, which would be in every span, and of other tracers than ours.
func parentOf(h http.Header) trace.SpanContext {
	parts := traceParent(h)
	if parts == nil {
		return trace.SpanContext{}
	}
	config := trace.SpanContextConfig{Remote: true}
	config.TraceID, _ = trace.TraceIDFromHex(parts[1])
	config.SpanID, _ = trace.SpanIDFromHex(parts[2])
	if flags, err := hex.DecodeString(parts[3]); err == nil {
		config.TraceFlags = trace.TraceFlags(flags[0]) & trace.FlagsSampled
	}
	return trace.NewSpanContext(config)
}

func header(of trace.SpanContext) string {
	return "00-" + of.TraceID().String() + "-" + of.SpanID().String() + "-" + of.TraceFlags().String()
}

// logContext is what a log line about a request is written with: it has the span, or where
// nobody traces here the caller's.
func logContext(c echo.Context) context.Context {
	ctx := c.Request().Context()
	if trace.SpanContextFromContext(ctx).IsValid() {
		return ctx
	}
	return trace.ContextWithRemoteSpanContext(ctx, parentOf(c.Request().Header))
}

// correlated adds to a log line the trace and the span that its context belongs to.
type correlated struct{ slog.Handler }

// Handle implements [slog.Handler].
func (h correlated) Handle(ctx context.Context, r slog.Record) error {
	if of := trace.SpanContextFromContext(ctx); of.IsValid() {
		r = r.Clone()
		r.AddAttrs(slog.String("trace_id", of.TraceID().String()), slog.String("span_id", of.SpanID().String()))
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements [slog.Handler].
func (h correlated) WithAttrs(attrs []slog.Attr) slog.Handler {
	return correlated{h.Handler.WithAttrs(attrs)}
}

// WithGroup implements [slog.Handler].
func (h correlated) WithGroup(name string) slog.Handler {
	return correlated{h.Handler.WithGroup(name)}
}
