package mcp_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"policy-service/pdp/mcp"
	"policy-service/pdp/mcp/mcptest"
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

const toolCall = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"run","arguments":{},"_meta":{` +
	`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`

// send sends a call of the modern era, with further headers, and reads the answer to its end.
func send(t *testing.T, at, body string, headers ...string) string {
	t.Helper()
	return readAll(t, begin(t.Context(), t, at, body, append(headers, "Mcp-Method", "tools/call", "Mcp-Name", "run")...))
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

// readAll reads an answer to its end.
func readAll(t testing.TB, body io.ReadCloser) string {
	t.Helper()
	defer func() { _ = body.Close() }()
	b, err := io.ReadAll(body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// droppedBy counts the messages that were dropped so far, by reason.
func droppedBy(_ *testing.T, counts *sdkmetric.ManualReader) map[string]int64 {
	return countedBy(counts, "policy_service.mcp.dropped", "reason")
}
