package gate

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// How a request of a client ended.
const (
	outcomeAnswered = "answered" // by the server, also if with an error of its own
	outcomeRefused  = "refused"  // by a decision, or because it could not be decided
	outcomeFailed   = "failed"   // the server did not answer
	outcomeInvalid  = "invalid"  // it was no request that could be decided about
)

// Meters are what the gateway counts. No label is anything that somebody sent: a method that MCP does not have is "other".
type Meters struct {
	calls, dropped metric.Int64Counter
	pdp, upstream  metric.Float64Histogram
}

// NewMeters makes them.
func NewMeters(m metric.Meter) (*Meters, error) {
	seconds := metric.WithExplicitBucketBoundaries(.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60)
	var t Meters
	var errs [4]error
	t.calls, errs[0] = m.Int64Counter("policy_service.mcp.calls", metric.WithDescription("Requests of MCP clients, by method and how they ended."))
	t.pdp, errs[1] = m.Float64Histogram("policy_service.mcp.pdp.duration", metric.WithUnit("s"), seconds, metric.WithDescription("How long the PDP took to decide about a request."))
	t.upstream, errs[2] = m.Float64Histogram("policy_service.mcp.upstream.duration", metric.WithUnit("s"), seconds, metric.WithDescription("How long the MCP server took to answer a request."))
	t.dropped, errs[3] = m.Int64Counter("policy_service.mcp.dropped", metric.WithDescription("Messages of MCP servers and clients that went nowhere, by reason."))
	return &t, errors.Join(errs[:]...)
}

// Drop counts a message that went nowhere.
func (t *Meters) Drop(reason string) {
	t.dropped.Add(context.Background(), 1, metric.WithAttributes(attribute.String("reason", reason)))
}

func (t *Meters) call(ctx context.Context, method, outcome string) {
	t.calls.Add(ctx, 1, metric.WithAttributes(attribute.String("method", labelOf(method)), attribute.String("outcome", outcome)))
}

// labelOf is a method as telemetry names it.
func labelOf(method string) string {
	if known[method] {
		return method
	}
	return "other"
}

func since(ctx context.Context, h metric.Float64Histogram, from, to time.Time) {
	h.Record(ctx, to.Sub(from).Seconds())
}

// known are the methods of MCP that clients ask.
var known = map[string]bool{
	"initialize": true, "ping": true, "server/discover": true, "subscriptions/listen": true, "completion/complete": true, "logging/setLevel": true,
	"tools/list": true, "tools/call": true, "prompts/list": true, "prompts/get": true,
	"resources/list": true, "resources/templates/list": true, "resources/read": true, "resources/subscribe": true, "resources/unsubscribe": true,
}
