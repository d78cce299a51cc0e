package mcp_test

import (
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"policy-service/pdp/internal/mcp"
	"policy-service/pdp/pdptest"
)

// What a server asks that may not ask is refused, and the client hears nothing of it.
func TestErasDeny(t *testing.T) {
	t.Parallel()
	pdp := pdptest.Start(t, permitAll, open).URL
	for _, c := range cells() {
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			b := c.between(t, pdp, mcp.ServerRequests{})
			for _, tool := range []string{"ask", "twice"} {
				result, err := b.CallTool(t.Context(), &sdk.CallToolParams{Name: tool})
				if err == nil && !result.IsError {
					t.Errorf("%s: %+v", tool, result.Content[0])
				}
			}
			if len(b.asked) > 0 {
				t.Errorf("the person was asked %q", <-b.asked)
			}
		})
	}
}

// A gateway that is closed leaves nothing behind.
func TestErasLeaveNothing(t *testing.T) { // beside no other, whose goroutines it would see
	pdp := pdptest.Start(t, permitAll, open).URL
	for _, c := range []cell{{legacy: true, upLegacy: true}, {upStdio: true}, {upLegacy: true, stdio: true}, {legacy: true, upStdio: true}} {
		t.Run(c.String(), func(t *testing.T) {
			t.Run("use", func(t *testing.T) {
				b := c.between(t, pdp, relayed)
				changes(t, b)
				asks(t, b)
			})
			http.DefaultTransport.(*http.Transport).CloseIdleConnections()
			var left string
			for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); runtime.Gosched() {
				all := make([]byte, 1<<20)
				all = all[:runtime.Stack(all, true)]
				left = ""
				for one := range strings.SplitSeq(string(all), "\n\n") {
					if strings.Contains(one, "pdp/internal/mcp/internal/") {
						left = one
					}
				}
				if left == "" {
					return
				}
			}
			t.Errorf("something goes on:\n%s", left)
		})
	}
}
