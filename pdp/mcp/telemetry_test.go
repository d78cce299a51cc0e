package mcp_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"policy-service/pdp/mcp"
	"policy-service/pdp/mcp/mcptest"
	"policy-service/pdp/pdptest"
)

// watched is a gateway of one's own in front of an upstream, with what the test looks at it by.
func watched(t *testing.T, upstream string, d mcp.Deps) (g *mcp.Gateway, at string) {
	t.Helper()
	decides := pdptest.Start(t, permitAll, open)
	g, err := mcp.New(t.Context(), mcp.Config{
		Listen: "127.0.0.1:0", Resource: "http://127.0.0.1:8181/mcp", PDP: mcp.PDPConfig{URL: decides.URL},
		Identity:  mcp.IdentityConfig{Static: &mcp.StaticConfig{Sub: "alice", ClientID: "agent-1"}},
		Upstreams: map[string]mcp.UpstreamConfig{"up": {URL: upstream, AllowNetworks: []string{"127.0.0.0/8"}}},
	}, d)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(g.Handler())
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	return g, s.URL + mcp.Endpoint
}

// carried keeps what traces the questions to the PDP were of.
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
	upstream := mcptest.NewRecorder(t, mcptest.Answers{Tools: oneTool})
	asked := new(carried)
	_, at := watched(t, upstream.URL, mcp.Deps{Transport: asked})
	const trace = "0af7651916cd43dd8448eb211c80319c"
	if got := send(t, at, toolCall, "Traceparent", "00-"+trace+"-b7ad6b7169203331-01"); !strings.Contains(got, `"ran"`) {
		t.Fatal(got)
	}
	calls := slices.DeleteFunc(upstream.Got(), func(g mcptest.Got) bool { return g.Method != "tools/call" })
	if len(calls) != 1 || !strings.Contains(string(calls[0].Params), `"traceparent":"00-`+trace+"-") {
		t.Errorf("the server was told of no trace: %s", calls[0].Params)
	}
	if len(asked.traces) == 0 || slices.ContainsFunc(asked.traces, func(s string) bool { return !strings.HasPrefix(s, "00-"+trace+"-") }) {
		t.Errorf("the PDP was told of %q", asked.traces)
	}
}

const toolCall = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"run","arguments":{},"_meta":{` +
	`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`

// send sends a call of the modern era, with further headers, and reads the answer to its end.
func send(t *testing.T, at, body string, headers ...string) string {
	t.Helper()
	return readAll(t, begin(t.Context(), t, at, body, append(headers, "Mcp-Method", "tools/call", "Mcp-Name", "run")...))
}

// listening has somebody listen to what changes of tools.
func listening(ctx context.Context, t *testing.T, at string) io.ReadCloser {
	t.Helper()
	body := strings.Replace(strings.Replace(toolCall, "tools/call", "subscriptions/listen", 1), `"name":"run","arguments":{}`, `"notifications":{"toolsListChanged":true}`, 1)
	return begin(ctx, t, at, body, "Mcp-Method", "subscriptions/listen")
}

// begin sends a request of the modern era, and returns when the answer has begun. Of a header that is given twice the first
// counts.
func begin(ctx context.Context, t *testing.T, at, body string, headers ...string) io.ReadCloser {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, at, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i, all := 0, append(headers, "Content-Type", "application/json", "Accept", "application/json, text/event-stream", "Mcp-Protocol-Version", "2026-07-28"); i < len(all); i += 2 {
		if r.Header.Get(all[i]) == "" {
			r.Header.Set(all[i], all[i+1])
		}
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	return answer.Body
}

// TestMetrics counts what became of requests, by words of the gateway's own.
func TestMetrics(t *testing.T) {
	t.Parallel()
	upstream := mcptest.NewRecorder(t, mcptest.Answers{Tools: oneTool})
	reader := sdkmetric.NewManualReader()
	_, at := watched(t, upstream.URL, mcp.Deps{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))})
	send(t, at, toolCall)
	send(t, at, strings.ReplaceAll(toolCall, "tools/call", "evil/method"), "Mcp-Method", "evil/method")
	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	calls := map[string]int64{}
	names := map[string]bool{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			names[m.Name] = true
			if sum, ok := m.Data.(metricdata.Sum[int64]); ok && m.Name == "policy_service.mcp.calls" {
				for _, p := range sum.DataPoints {
					method, _ := p.Attributes.Value("method")
					outcome, _ := p.Attributes.Value("outcome")
					calls[method.AsString()+" "+outcome.AsString()] = p.Value
				}
			}
		}
	}
	if calls["tools/call answered"] != 1 || calls["other invalid"] != 1 || len(calls) != 2 {
		t.Errorf("counted %v", calls)
	}
	for _, name := range []string{"policy_service.mcp.available", "policy_service.mcp.pdp.duration", "policy_service.mcp.upstream.duration"} {
		if !names[name] {
			t.Errorf("there is no %s", name)
		}
	}
}

// TestDrain ends what only listens, at once, and takes requests all the same.
func TestDrain(t *testing.T) {
	t.Parallel()
	upstream := mcptest.NewRecorder(t, mcptest.Answers{Tools: oneTool})
	g, at := watched(t, upstream.URL, mcp.Deps{})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	stream := listening(ctx, t, at)
	g.Drain()
	if got := readAll(t, stream); ctx.Err() != nil || !strings.Contains(got, `"result"`) {
		t.Errorf("the stream ended with %q, %v", got, ctx.Err())
	}
	if got := send(t, at, toolCall); !strings.Contains(got, `"ran"`) {
		t.Error(got)
	}
}

// readAll reads an answer to its end.
func readAll(t *testing.T, body io.ReadCloser) string {
	t.Helper()
	defer func() { _ = body.Close() }()
	b, err := io.ReadAll(body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// droppedBy is what was dropped so far, by reason.
func droppedBy(t *testing.T, counts *sdkmetric.ManualReader) map[string]int64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	orFail(t, counts.Collect(t.Context(), &all))
	found := map[string]int64{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			sum, ok := m.Data.(metricdata.Sum[int64])
			if !ok || m.Name != "policy_service.mcp.dropped" {
				continue
			}
			for _, p := range sum.DataPoints {
				reason, _ := p.Attributes.Value("reason")
				found[reason.AsString()] += p.Value
			}
		}
	}
	return found
}
