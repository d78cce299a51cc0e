package mcp_test

import (
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"policy-service/pdp/pdptest/mcptest"
	"policy-service/pdp/pdptest/night"
)

// One principal has so many links to the server and no more, also if all of them are in use. A server may be a program, of
// which there is one for each link.
func TestLinksInUseAreBounded(t *testing.T) {
	t.Parallel()
	s := newSiege(t, camp{answers: mcptest.Answers{Eras: []string{"modern"}}})
	v := s.visitor("modern", nil)
	listen, refused := 0, 0
	for n := range 70 {
		if n%2 == 0 { // as another client
			v.capabilities = `{"experimental":{"` + strconv.Itoa(n) + `":{}}}`
		} else {
			v.name = "c" + strconv.Itoa(n)
		}
		switch answer := v.opens(t.Context(), http.MethodPost, "subscriptions/listen", `{"notifications":{"toolsListChanged":true}}`); {
		case answer.Header.Get("Content-Type") == "text/event-stream":
			listen++
		case answer.StatusCode == http.StatusTooManyRequests:
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
	s := newSiege(t, camp{answers: mcptest.Answers{Eras: []string{"modern"}, Handle: func(c *mcptest.Call) bool {
		if c.Method != "subscriptions/listen" {
			return false
		}
		c.Message(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":{"toolsListChanged":true,"resourceSubscriptions":[` + uris.String()[1:] +
			`]},"_meta":{"io.modelcontextprotocol/subscriptionId":` + string(c.ID) + `}}}`)
		<-c.Context.Done()
		return true
	}}})
	s.visitor("modern", nil).stream(`{"notifications":{"toolsListChanged":true}}`).hears("acknowledged")
}

// What is kept of a client is what it says of itself, which is bounded, and not the rest of the request.
func TestClientsAreKeptSmall(t *testing.T) {
	night.Measures(t)
	v := newSiege(t, camp{}).visitor("modern", nil)
	ask := func(info, more string) string {
		return v.send(`{"jsonrpc":"2.0","id":1,"method":"ping","params":{"more":"`+more+`","_meta":{"io.modelcontextprotocol/protocolVersion":"`+modernVersion+
			`","io.modelcontextprotocol/clientInfo":`+info+`,"io.modelcontextprotocol/clientCapabilities":{}}}}`, v.headers("ping", "{}")...).text
	}
	const large = 900_000
	if got := ask(`{"name":"`+strings.Repeat("n", large)+`","version":"1"}`, ""); !strings.Contains(got, "-32602") {
		t.Errorf("a client with a long name: %.200s", got)
	}
	heap := func() uint64 {
		v.client.CloseIdleConnections()
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
