package mcp_test

import (
	"context"
	"net/http"
	"slices"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"policy-service/pdp/internal/mcp"
	"policy-service/pdp/pdptest/mcptest"
)

// masksLook takes something out of the results of look, and of nothing else.
var masksLook = map[string]string{
	"a.cedar": `@id("all") permit (principal, action, resource) unless { action == Action::"tool.invoke" && resource == tool::"rec:look" };
		@id("mask") @obligation("mask") permit (principal, action == Action::"tool.invoke", resource == tool::"rec:look");`,
	"obligations.yaml": "mask: {type: redact, properties: {fields: [/ssn]}}\n",
}

// longReceipts is a way to the PDP on which no receipt is given up.
func longReceipts(t testing.TB) http.RoundTripper {
	network := mcp.NewTransport()
	t.Cleanup(network.CloseIdleConnections)
	return mcptest.LongReceipts{RoundTripper: network}
}

// A gateway that is closed has on record what became of the calls that were under way: it does not end before.
func TestClosedIsOnRecord(t *testing.T) {
	t.Parallel()
	come := make(chan struct{})
	s := newSiege(t, camp{policies: masksLook, deps: mcp.Deps{Transport: longReceipts(t)}, answers: mcptest.Answers{Handle: func(c *mcptest.Call) bool {
		if c.Method != "tools/call" {
			return false
		}
		come <- struct{}{}
		<-c.Context.Done()
		return true
	}}})
	const calls = 8
	answered := make(chan echo, calls)
	for range calls {
		v := s.stranger("modern", s.issuer.Token(t, nil))
		go func() {
			got, _ := v.try(t.Context(), http.MethodPost, v.text("tools/call", `{"name":"look","arguments":{}}`), v.headers("tools/call", `{"name":"look"}`)...)
			answered <- got
		}()
	}
	for range calls {
		<-come
	}
	orFail(t, s.gateway.Close())
	receipts := 0
	for _, line := range s.records() {
		if line.Kind == "receipt" {
			receipts++
		}
	}
	if receipts != calls {
		t.Errorf("of %d calls %d are on record", calls, receipts)
	}
	for range calls {
		if got := <-answered; got.code() != -32603 {
			t.Error(got)
		}
	}
	if got := s.stranger("modern", s.issuer.Token(t, nil)).call("look", `{}`); got.ran() {
		t.Errorf("behind the end: %s", got)
	}
}

// besideTraces has spans that panic when they are told how a call went.
type besideTraces struct{ noop.TracerProvider }

type besideTracer struct{ noop.Tracer }

type besideSpan struct{ noop.Span }

func (besideTraces) Tracer(string, ...trace.TracerOption) trace.Tracer { return besideTracer{} }

func (besideTracer) Start(ctx context.Context, name string, _ ...trace.SpanStartOption) (context.Context, trace.Span) {
	if name == "mcp tools/call" {
		return ctx, besideSpan{}
	}
	return ctx, noop.Span{}
}

func (besideSpan) IsRecording() bool { return true }

func (besideSpan) SetAttributes(...attribute.KeyValue) { panic(http.ErrAbortHandler) }

// A request that panics before its answer leaves has on record what became of what it owed.
func TestAPanicIsOnRecord(t *testing.T) {
	t.Parallel()
	s := newSiege(t, camp{policies: masksLook, deps: mcp.Deps{TracerProvider: besideTraces{}, Transport: longReceipts(t)}})
	v := s.stranger("modern", s.issuer.Token(t, nil))
	if got, err := v.try(t.Context(), http.MethodPost, v.text("tools/call", `{"name":"look","arguments":{}}`), v.headers("tools/call", `{"name":"look"}`)...); err == nil {
		t.Fatalf("nobody has panicked: %v", got)
	}
	if !slices.ContainsFunc(s.records(), func(l loggedLine) bool { return l.Kind == "receipt" }) {
		t.Error("what became of the call is not on record")
	}
}
