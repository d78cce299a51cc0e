package mcp_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"policy-service/pdp/mcp"
	"policy-service/pdp/mcp/mcptest"
)

// TestListenersAreInNobodysWay has somebody listen who may have one request under way, and call meanwhile.
func TestListenersAreInNobodysWay(t *testing.T) {
	upstream := mcptest.NewRecorder(t, mcptest.Answers{Tools: oneTool})
	at, _ := through(t, passage{name: "up", upstream: upstream.URL, change: func(c *mcp.Config) { c.Limits.PerPrincipal.Concurrent = 1 }})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	body := strings.Replace(strings.Replace(toolCall, "tools/call", "subscriptions/listen", 1), `"name":"run","arguments":{}`, `"notifications":{"toolsListChanged":true}`, 1)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, at, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{
		"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "subscriptions/listen",
	} {
		r.Header.Set(name, value)
	}
	stream, err := http.DefaultClient.Do(r) // it has begun when its header comes
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stream.Body.Close() }()
	if got := send(t, at, toolCall); !strings.Contains(got, `"ran"`) {
		t.Error(got)
	}
}
