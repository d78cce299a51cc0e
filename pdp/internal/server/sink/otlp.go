package sink

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/log"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/server/telemetry"
)

// otlp sends records over OTLP/HTTP.
type otlp struct {
	to  *telemetry.Records
	now func() time.Time
}

// OTLP makes the exporter of records. A variable that cannot be read is an error.
func OTLP(ctx context.Context, from *telemetry.Telemetry, now func() time.Time) (Send, error) {
	// If a receiver asks to be tried again, or names a time to wait, the exporter does so as long
	// as the attempt lasts. The sink sees to every other failure.
	to, err := from.OpenRecords(ctx, sinkAgain)
	if err != nil {
		return nil, err
	}
	return (&otlp{to, now}).send, nil
}

// send exports records, all in one request.
func (o *otlp) send(ctx context.Context, records []record.Record) error {
	for _, r := range records {
		o.emit(r.Line)
	}
	return o.to.Send(ctx)
}

// emit makes a log record of a line. The line is its body, so that a reader can hash it. The members
// to search by are attributes, by the names of OpenTelemetry if it has any.
func (o *otlp) emit(line []byte) {
	ctx := context.Background()
	var r log.Record
	r.SetBody(attribute.StringValue(string(line)))
	r.SetObservedTimestamp(o.now())
	if s, err := record.Parse(line); err == nil { // else the line alone must do
		if id, err := trace.TraceIDFromHex(s.TraceID); err == nil {
			ctx = trace.ContextWithSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{TraceID: id}))
		}
		r.SetTimestamp(s.Time)
		r.SetEventName(eventName(s))
		r.SetSeverity(severityOf(s))
		r.SetSeverityText(severityOf(s).String())
		r.AddAttributes(attributesOf(s)...)
	}
	o.to.Logger.Emit(ctx, r)
}

// eventName tells records apart that have different members: policy_service.decision,
// policy_service.admin.start.
func eventName(s *record.Recorded) string {
	if s.Event != "" {
		return "policy_service." + s.Kind + "." + s.Event
	}
	return "policy_service." + s.Kind
}

// severityOf is a warning if an operator should look: a policy that errs, and what went
// wrong with the service itself or with tools. A deny is what policies are for.
func severityOf(s *record.Recorded) log.Severity {
	switch s.Event {
	case format.EventBundleRefused, format.EventConfigurationRefused, format.EventCrash, format.EventResumed, format.EventDropped,
		format.EventLoss, format.EventUnsigned, format.EventToolDrift, format.EventWithdrawn:
		return log.SeverityWarn
	}
	if len(s.Errors) > 0 {
		return log.SeverityWarn
	}
	return log.SeverityInfo
}

func attributesOf(s *record.Recorded) []attribute.KeyValue {
	all := []attribute.KeyValue{semconv.LogRecordUID(s.ID), attribute.Int64("policy_service.sequence", int64(s.Sequence))}
	for _, a := range []struct{ name, value string }{
		{"kind", s.Kind},
		{"tenant", s.Tenant},
		{"caller", s.Caller},
		{"request_id", s.RequestID},
		{"subject.type", s.Names.Subject.Type},
		{"subject.id", s.Names.Subject.ID},
		{"action", s.Names.Action.Name},
		{"resource.type", s.Names.Resource.Type},
		{"resource.id", s.Names.Resource.ID},
		{"decision", s.Answer()},
		{"reason", s.Reason},
		{"bundle", s.Bundle},
	} {
		if a.value != "" {
			all = append(all, attribute.String("policy_service."+a.name, a.value))
		}
	}
	if possible, impossible, err := s.Counts(); s.Items != nil && err == nil {
		all = append(all, attribute.Int64("policy_service.possible", possible), attribute.Int64("policy_service.impossible", impossible))
	}
	if len(s.Determining) > 0 {
		all = append(all, attribute.StringSlice("policy_service.determining", s.Determining))
	}
	return all
}
