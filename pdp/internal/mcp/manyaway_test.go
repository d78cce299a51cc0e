package mcp_test

import (
	"context"
	"net/http"
	"slices"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"policy-service/pdp/internal/mcp"
	"policy-service/pdp/pdptest/mcptest"
)

// Who gives up before a session has begun leaves nothing behind, also at a server that was slow to begin it.
func TestManyGivenUp(t *testing.T) {
	t.Parallel()
	tap, came, goes := newWiretap(t), make(chan struct{}, 8), make(chan struct{})
	tap.answers(func(_ http.ResponseWriter, r *http.Request, _ []byte) bool {
		came <- struct{}{}
		select {
		case <-goes:
			return false
		case <-r.Context().Done():
			return true
		}
	})
	opened, spans := make(chan struct{}, 8), tracetest.NewSpanRecorder()
	m := newMany(t, camp{deps: mcp.Deps{TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))}}, map[string]manyServer{
		"a": {answers: mcptest.Answers{Eras: []string{"legacy"}, Heard: func(g mcptest.Got) { opened <- struct{}{} }}},
		"b": {answers: mcptest.Answers{Eras: []string{"legacy"}}, before: tap.beforeServer},
	})
	v := m.stranger("legacy", m.issuer.Token(t, nil))
	ctx, giveUp := context.WithCancel(t.Context())
	over := make(chan error, 1)
	params := `{"protocolVersion":"2025-11-25","clientInfo":{"name":"x","version":"1"},"capabilities":{}}`
	go func() {
		_, err := v.try(ctx, http.MethodPost, v.text("initialize", params), v.headers("initialize", params)...)
		over <- err
	}()
	<-opened
	<-came
	giveUp()
	if err := <-over; err == nil {
		t.Error("it was answered")
	}
	mcptest.Until(t, "the gateway has noticed", func() bool {
		return slices.ContainsFunc(spans.Ended(), func(s sdktrace.ReadOnlySpan) bool { return s.Name() == "mcp initialize" })
	})
	tap.answers(nil)
	close(goes)
	mcptest.Until(t, "the session with the slow server is over", func() bool {
		return slices.ContainsFunc(tap.all(), func(q tapped) bool { return q.verb == http.MethodDelete })
	})
}
