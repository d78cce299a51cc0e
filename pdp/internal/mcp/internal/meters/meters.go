// Package meters counts the work of the gateway, and shows its health, in OpenTelemetry.
package meters

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"policy-service/pdp/internal/mcp/internal/answer"
	"policy-service/pdp/internal/mcp/internal/ask"
	"policy-service/pdp/internal/mcp/internal/link"
	"policy-service/pdp/internal/mcp/internal/people"
	"policy-service/pdp/internal/rpc"
	"policy-service/pdp/mcp/wire"
)

// Outcomes of a request for a tool that a participant has claimed.
const (
	FulfilAnswered = "answered" // by the server
	FulfilRefused  = "refused"  // the requester may not request the tool any more, or the server asked for input
	FulfilBroken   = "failed"   // no answer came
)

// ScopeName names the gateway in telemetry.
const ScopeName = "policy-service/pdp/mcp"

// Meters are the instruments of the gateway. No label holds text that was sent: a method that MCP does not have is "other".
type Meters struct {
	calls, dropped, masked, undecided, letPass, fulfilments metric.Int64Counter

	pdp, upstream                        metric.Float64Histogram
	available, drift, waiting, requested metric.Int64ObservableGauge
	meter                                metric.Meter
}

func New(m metric.Meter) (*Meters, error) {
	seconds := metric.WithExplicitBucketBoundaries(.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60)
	t := Meters{meter: m}
	var errs [12]error
	t.calls, errs[0] = m.Int64Counter("policy_service.mcp.calls", metric.WithDescription("Requests of MCP clients, by method and how they ended."))
	t.pdp, errs[1] = m.Float64Histogram("policy_service.mcp.pdp.duration", metric.WithUnit("s"), seconds, metric.WithDescription("How long the PDP took to decide about a request."))
	t.upstream, errs[2] = m.Float64Histogram("policy_service.mcp.upstream.duration", metric.WithUnit("s"), seconds, metric.WithDescription("How long the MCP server took to answer a request."))
	t.dropped, errs[3] = m.Int64Counter("policy_service.mcp.dropped", metric.WithDescription("Messages of MCP servers and clients that went nowhere, by reason."))
	t.available, errs[4] = m.Int64ObservableGauge("policy_service.mcp.available", metric.WithDescription("Whether the PDP and each MCP server answered when they were last asked: 1 or 0."))
	t.drift, errs[5] = m.Int64ObservableGauge("policy_service.mcp.drift", metric.WithDescription("How much of what an MCP server lists is not as it is locked, by server."))
	t.waiting, errs[6] = m.Int64ObservableGauge("policy_service.mcp.waiting", metric.WithDescription("Calls that wait for people to decide about them."))
	t.requested, errs[7] = m.Int64ObservableGauge("policy_service.mcp.requested", metric.WithDescription("Requests for tools that somebody else may fulfil, or is just fulfilling."))
	t.fulfilments, errs[8] = m.Int64Counter("policy_service.mcp.fulfilments", metric.WithDescription("Requests for tools that somebody else has fulfilled, by how that ended."))
	t.masked, errs[9] = m.Int64Counter("policy_service.mcp.masked", metric.WithDescription("Secrets of the gateway that were masked in what an MCP server sent, by server."))
	t.undecided, errs[10] = m.Int64Counter("policy_service.mcp.undecided", metric.WithDescription("Requests of MCP clients that were refused because no decision came, by why."))
	t.letPass, errs[11] = m.Int64Counter("policy_service.mcp.let_pass", metric.WithDescription("Calls that a setting of the gateway lets pass and whose other value would refuse, by setting."))
	for _, why := range ask.UndecidedWhy() { // a counter that begins with its first event raises no alert by it
		count(t.undecided, 0, "reason", why)
	}
	return &t, errors.Join(errs[:]...)
}

func (t *Meters) Undecided(reason string) { count(t.undecided, 1, "reason", reason) }

// LetPass counts a call that a setting lets pass, and whose other value would have refused it.
func (t *Meters) LetPass(setting string) { count(t.letPass, 1, "setting", setting) }

// Watch shows the health of the PDP and of each server, what waits, and the drifts of each server, until stop is called.
func (t *Meters) Watch(asker *ask.Asker, servers *link.Servers, asked *people.People) (stop func()) {
	number := func(away bool) int64 {
		if away {
			return 0
		}
		return 1
	}
	r, err := t.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		o.ObserveInt64(t.available, number(asker.Away()), metric.WithAttributes(attribute.String("of", "pdp")))
		drifts := servers.DriftCounts()
		for _, s := range servers.All() {
			name := attribute.String("server", s.Name)
			o.ObserveInt64(t.available, number(!s.Answers()), metric.WithAttributes(attribute.String("of", "server"), name))
			if drifts != nil {
				o.ObserveInt64(t.drift, drifts[s.Name], metric.WithAttributes(name))
			}
		}
		calls, requests := asked.Waits()
		o.ObserveInt64(t.waiting, int64(calls))
		o.ObserveInt64(t.requested, int64(requests))
		return nil
	}, t.available, t.waiting, t.requested, t.drift)
	if err != nil { // no reader sees the error, and nothing depends on it
		return func() {}
	}
	return func() { _ = r.Unregister() }
}

func (t *Meters) Drop(reason string) { count(t.dropped, 1, "reason", reason) }

// Mask counts secrets of the gateway that were masked in a message of a server.
func (t *Meters) Mask(server string, places int) { count(t.masked, int64(places), "server", server) }

func count(c metric.Int64Counter, n int64, label, value string) {
	c.Add(context.Background(), n, metric.WithAttributes(attribute.String(label, value)))
}

func (t *Meters) Fulfilment(ctx context.Context, how string) {
	t.fulfilments.Add(ctx, 1, metric.WithAttributes(attribute.String("outcome", how)))
}

// Call counts a request of a client that has ended.
func (t *Meters) Call(ctx context.Context, method string, outcome answer.Outcome) {
	t.calls.Add(ctx, 1, metric.WithAttributes(attribute.String("method", LabelOf(method)), attribute.String("outcome", string(outcome))))
}

// LabelOf returns the label of a method in telemetry.
func LabelOf(method string) string {
	if known[method] {
		return method
	}
	return "other"
}

// EndStep ends the span of a step, with its outcome. It records nothing that was sent.
func EndStep(span trace.Span, outcome answer.Outcome) {
	defer span.End()
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(attribute.String("policy_service.mcp.outcome", string(outcome)))
	if outcome == answer.Failed {
		span.SetStatus(codes.Error, "")
	}
}

// Asked records how long the PDP took to decide about a request.
func (t *Meters) Asked(ctx context.Context, took time.Duration) { t.pdp.Record(ctx, took.Seconds()) }

// Sent records how long an MCP server took to answer a request.
func (t *Meters) Sent(ctx context.Context, took time.Duration) {
	t.upstream.Record(ctx, took.Seconds())
}

// known are the methods that clients call, those of MCP and our own.
var known = map[string]bool{
	"initialize": true, "ping": true, "server/discover": true, "subscriptions/listen": true, "completion/complete": true, "logging/setLevel": true,
	"tools/list": true, "tools/call": true, wire.MethodToolRequest: true, "prompts/list": true, "prompts/get": true,
	"resources/list": true, "resources/templates/list": true, "resources/read": true, "resources/subscribe": true, "resources/unsubscribe": true,
	rpc.Respond: true,
}
