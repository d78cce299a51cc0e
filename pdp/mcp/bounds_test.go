package mcp_test

import (
	"context"
	"io"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"policy-service/pdp/mcp/mcptest"
	"policy-service/pdp/pdptest/night"
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

// One principal has so many links to the server and no more, also if all of them are in use. A server may be a program, of
// which there is one for each link.
func TestLinksInUseAreBounded(t *testing.T) {
	t.Parallel()
	upstream := mcptest.NewRecorder(t, mcptest.Answers{Eras: []string{"modern"}})
	at, _ := through(t, passage{name: "up", upstream: upstream.URL})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	listen, refused := 0, 0
	for n := range 70 {
		info := `{"name":"c` + strconv.Itoa(n) + `","version":"1"}`
		status, first, stream := boundsListen(ctx, t, at, info, `{"toolsListChanged":true}`)
		defer func() { _ = stream.Close() }()
		switch {
		case status == http.StatusOK && !strings.Contains(first, `"error"`):
			listen++
		case status == http.StatusTooManyRequests:
			refused++
		}
	}
	if listen != 64 || refused != 6 {
		t.Errorf("%d listen, and %d were refused", listen, refused)
	}
}

// A server that agrees to tell of very much keeps nobody busy.
func TestWantsAreBounded(t *testing.T) {
	t.Parallel()
	var uris strings.Builder
	for n := range 200_000 {
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
	status, first, stream := boundsListen(ctx, t, at, `{"name":"c","version":"1"}`, `{"toolsListChanged":true}`)
	defer func() { _ = stream.Close() }()
	if !strings.Contains(first, "acknowledged") {
		t.Errorf("got %d %s", status, first)
	}
}

// What is kept of a client is what it says of itself, which is bounded, and not the rest of the request.
func TestClientsAreKeptSmall(t *testing.T) {
	night.Measures(t)
	upstream := mcptest.NewRecorder(t, mcptest.Answers{})
	at, _ := through(t, passage{name: "up", upstream: upstream.URL})
	ask := func(info, more string) string {
		return send(t, at, `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"more":"`+more+`","_meta":{"io.modelcontextprotocol/protocolVersion":"`+modernVersion+
			`","io.modelcontextprotocol/clientInfo":`+info+`,"io.modelcontextprotocol/clientCapabilities":{}}}}`, "Mcp-Method", "ping")
	}
	const large = 900_000
	if got := ask(`{"name":"`+strings.Repeat("n", large)+`","version":"1"}`, ""); !strings.Contains(got, "-32602") {
		t.Errorf("a client with a long name: %.200s", got)
	}
	heap := func() uint64 {
		http.DefaultClient.CloseIdleConnections()
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	more := strings.Repeat("m", large)
	before := heap()
	for n := range 32 {
		ask(`{"name":"c`+strconv.Itoa(n)+`","version":"1"}`, more)
	}
	if grown := int64(heap()) - int64(before); grown > 12<<20 {
		t.Errorf("of 32 clients %d bytes are kept", grown)
	}
}
