package server

import (
	"context"
	"time"

	"github.com/go-json-experiment/json"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/log"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"policy-service/pdp/decisionlog"
)

// streamed is what is read of a record line to say it in OpenTelemetry's terms.
type streamed struct {
	Sequence  int64     `json:"sequence"`
	ID        string    `json:"id"`
	Time      time.Time `json:"time"`
	Tenant    string    `json:"tenant"`
	Kind      string    `json:"kind"`
	Caller    string    `json:"caller"`
	RequestID string    `json:"request_id"`
	TraceID   string    `json:"trace_id"`
	Request   struct {
		Subject  streamedEntity `json:"subject"`
		Action   streamedAction `json:"action"`
		Resource streamedEntity `json:"resource"`
	} `json:"request"`
	Decision    *bool    `json:"decision"`
	Reason      string   `json:"reason"`
	Determining []string `json:"determining"`
	Errors      []struct {
		Policy string `json:"policy"`
	} `json:"errors"`
	Bundle string `json:"bundle"`
	Event  string `json:"event"`
}

type streamedEntity struct {
	Type string `json:"type"`
	ID   string `json:"id"`
}

type streamedAction struct {
	Name string `json:"name"`
}

// emit makes a log record of a line. The line is its body, so that who has it can hash
// it; what it is searched by are attributes, by OpenTelemetry's names where it has them.
func (o *otlp) emit(line []byte) {
	ctx := context.Background()
	var r log.Record
	r.SetBody(attribute.StringValue(string(line)))
	r.SetObservedTimestamp(o.now())
	var s streamed
	if json.Unmarshal(line, &s) == nil { // else the line alone must do
		if id, err := trace.TraceIDFromHex(s.TraceID); err == nil {
			ctx = trace.ContextWithSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{TraceID: id}))
		}
		r.SetTimestamp(s.Time)
		r.SetEventName(s.name())
		r.SetSeverity(s.severity())
		r.SetSeverityText(s.severity().String())
		r.AddAttributes(s.attributes()...)
	}
	o.logger.Emit(ctx, r)
}

// name tells apart what is built differently: policy_service.decision,
// policy_service.admin.start.
func (s *streamed) name() string {
	if s.Event != "" {
		return "policy_service." + s.Kind + "." + s.Event
	}
	return "policy_service." + s.Kind
}

// severity is a warning where somebody should look: a policy that errs, and what went
// wrong with the service itself. A deny is what policies are for.
func (s *streamed) severity() log.Severity {
	switch s.Event {
	case "bundle_refused", "configuration_refused", decisionlog.EventCrash, decisionlog.EventResumed, decisionlog.EventDropped:
		return log.SeverityWarn
	}
	if len(s.Errors) > 0 {
		return log.SeverityWarn
	}
	return log.SeverityInfo
}

func (s *streamed) attributes() []attribute.KeyValue {
	all := []attribute.KeyValue{semconv.LogRecordUID(s.ID), attribute.Int64("policy_service.sequence", s.Sequence)}
	for _, a := range []struct{ name, value string }{
		{"kind", s.Kind},
		{"tenant", s.Tenant},
		{"caller", s.Caller},
		{"request_id", s.RequestID},
		{"subject.type", s.Request.Subject.Type},
		{"subject.id", s.Request.Subject.ID},
		{"action", s.Request.Action.Name},
		{"resource.type", s.Request.Resource.Type},
		{"resource.id", s.Request.Resource.ID},
		{"decision", s.decision()},
		{"reason", s.Reason},
		{"bundle", s.Bundle},
	} {
		if a.value != "" {
			all = append(all, attribute.String("policy_service."+a.name, a.value))
		}
	}
	if len(s.Determining) > 0 {
		all = append(all, attribute.StringSlice("policy_service.determining", s.Determining))
	}
	return all
}

func (s *streamed) decision() string {
	switch {
	case s.Decision == nil:
		return ""
	case *s.Decision:
		return "allow"
	}
	return "deny"
}
