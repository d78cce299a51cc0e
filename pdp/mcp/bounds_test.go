package mcp_test

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"policy-service/pdp/mcp/mcptest"
)

// boundsListen opens a listener that says of its client what is given, and returns the status and the first that comes.
func boundsListen(ctx context.Context, t *testing.T, at, info, wants string) (status int, first string, stream io.Closer) {
	t.Helper()
	body := `{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"notifications":` + wants + `,"_meta":{"io.modelcontextprotocol/protocolVersion":"` + modernVersion +
		`","io.modelcontextprotocol/clientInfo":` + info + `,"io.modelcontextprotocol/clientCapabilities":{}}}}`
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, at, strings.NewReader(body))
	orFail(t, err)
	for name, v := range map[string]string{"Content-Type": "application/json", "Accept": "application/json, text/event-stream",
		"Mcp-Protocol-Version": modernVersion, "Mcp-Method": "subscriptions/listen"} {
		r.Header.Set(name, v)
	}
	answer, err := http.DefaultClient.Do(r)
	orFail(t, err)
	b := make([]byte, 512)
	n, _ := answer.Body.Read(b)
	return answer.StatusCode, string(b[:n]), answer.Body
}

// A server that agrees to tell of very much keeps nobody busy.
func TestWantsAreBounded(t *testing.T) {
	var uris strings.Builder
	for n := range 80_000 {
		uris.WriteString(`,"` + strconv.Itoa(1_000_000+n) + `"`)
	}
	upstream := mcptest.NewRecorder(t, mcptest.Answers{Eras: []string{"modern"}, Handle: func(c *mcptest.Call) bool {
		if c.Method != "subscriptions/listen" {
			return false
		}
		c.Message(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":{"toolsListChanged":true,"resourceSubscriptions":[` + uris.String()[1:] +
			`]},"_meta":{"io.modelcontextprotocol/subscriptionId":` + string(c.ID) + `}}}`)
		<-c.Context.Done()
		return true
	}})
	at, _ := through(t, passage{name: "up", upstream: upstream.URL})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	begun := time.Now()
	status, first, stream := boundsListen(ctx, t, at, `{"name":"c","version":"1"}`, `{"toolsListChanged":true}`)
	defer func() { _ = stream.Close() }()
	if took := time.Since(begun); took > 2*time.Second || !strings.Contains(first, "acknowledged") {
		t.Errorf("after %v: %d %s", took, status, first)
	}
}
