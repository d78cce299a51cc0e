package mcp_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"policy-service/pdp/mcp"
	"policy-service/pdp/mcp/mcptest"
)

// TestListenersAreInNobodysWay has somebody listen who may have one request under way, and call meanwhile.
func TestListenersAreInNobodysWay(t *testing.T) {
	t.Parallel()
	upstream := mcptest.NewRecorder(t, mcptest.Answers{Tools: oneTool})
	at, _ := through(t, passage{name: "up", upstream: upstream.URL, change: func(c *mcp.Config) { c.Limits.PerPrincipal.Concurrent = 1 }})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	stream := listening(ctx, t, at) // it has begun when its header comes
	defer func() { _ = stream.Close() }()
	if got := send(t, at, toolCall); !strings.Contains(got, `"ran"`) {
		t.Error(got)
	}
}
