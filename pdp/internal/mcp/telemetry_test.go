package mcp_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"policy-service/pdp/internal/mcp"
	"policy-service/pdp/pdptest/mcptest"
)

// carried keeps the traces of the questions to the PDP.
type carried struct {
	mu     sync.Mutex
	traces []string
}

func (c *carried) RoundTrip(r *http.Request) (*http.Response, error) {
	c.mu.Lock()
	c.traces = append(c.traces, r.Header.Get("Traceparent"))
	c.mu.Unlock()
	return http.DefaultTransport.RoundTrip(r)
}

// TestOneTrace follows a client's trace to the PDP and to the server.
func TestOneTrace(t *testing.T) {
	t.Parallel()
	asked := new(carried)
	s := newSiege(t, camp{deps: mcp.Deps{Transport: asked}})
	const trace = "0af7651916cd43dd8448eb211c80319c"
	if got := s.visitor("modern", nil).call("look", `{}`, "Traceparent", "00-"+trace+"-b7ad6b7169203331-01"); !got.ran() {
		t.Fatal(got)
	}
	calls := slices.DeleteFunc(s.rec.Got(), func(g mcptest.Got) bool { return g.Method != "tools/call" })
	if len(calls) != 1 || !strings.Contains(string(calls[0].Params), `"traceparent":"00-`+trace+"-") {
		t.Errorf("the server was told of no trace: %v", calls)
	}
	if len(asked.traces) == 0 || slices.ContainsFunc(asked.traces, func(s string) bool { return !strings.HasPrefix(s, "00-"+trace+"-") }) {
		t.Errorf("the PDP was told of %q", asked.traces)
	}
}

// TestMetrics: requests are counted by how they ended, in words of the gateway's own.
func TestMetrics(t *testing.T) {
	t.Parallel()
	reader, deps := metered()
	s := newSiege(t, camp{deps: deps})
	v := s.visitor("modern", nil)
	v.call("look", `{}`)
	v.ask("evil/method", `{}`)
	if got := fmt.Sprint(callsCounted(reader, "tools/call"), callsCounted(reader, "other"), callsCounted(reader, "evil/method")); got != "map[answered:1] map[invalid:1] map[]" {
		t.Errorf("counted %s", got)
	}
	var all metricdata.ResourceMetrics
	orFail(t, reader.Collect(t.Context(), &all))
	names := map[string]bool{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			names[m.Name] = true
		}
	}
	for _, name := range []string{"policy_service.mcp.available", "policy_service.mcp.pdp.duration", "policy_service.mcp.upstream.duration"} {
		if !names[name] {
			t.Errorf("there is no %s", name)
		}
	}
}

// droppedBy counts the messages that were dropped so far, by reason.
func droppedBy(_ *testing.T, counts *sdkmetric.ManualReader) map[string]int64 {
	return countedBy(counts, "policy_service.mcp.dropped", "reason")
}
