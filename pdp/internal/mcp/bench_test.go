package mcp_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"policy-service/pdp/internal/mcp"
	"policy-service/pdp/internal/mcp/lock"
	"policy-service/pdp/pdptest/mcptest"
)

// What does the gateway itself cost for a call? The PDP says yes at once, and the server runs everything at once; its own
// part of the allocations is in the count. The tool is locked, and its arguments are held against its schema.
func BenchmarkCall(b *testing.B) {
	const resource = "https://mcp.example.com/mcp"
	issuer := mcptest.NewIssuer(b, resource, time.Now)
	server := httptest.NewServer(http.HandlerFunc(benchServer))
	b.Cleanup(server.Close)
	locked := filepath.Join(b.TempDir(), "tools.lock.json")
	tool, err := lock.ParseTool([]byte(benchTool))
	if err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(locked, lock.File{Servers: map[string]lock.Server{"bench": {Tools: map[string]lock.Tool{tool.Name(): tool}}}}.Text(), 0o600); err != nil {
		b.Fatal(err)
	}
	g, err := mcp.New(b.Context(), mcp.Config{
		Listen: "127.0.0.1:0", Resource: resource, PDP: mcp.PDPConfig{URL: "http://127.0.0.1:1"},
		Identity:  mcp.IdentityConfig{Issuers: []mcp.IssuerConfig{{Issuer: issuer.URL, Algorithms: []string{"ES256"}, JWKSFile: issuer.KeysFile(b)}}},
		Upstreams: map[string]mcp.UpstreamConfig{"bench": {URL: server.URL, AllowNetworks: []string{"127.0.0.0/8"}}},
		Lock:      mcp.LockConfig{File: locked},
		Limits:    mcp.LimitsConfig{Rate: 1e6, Burst: 1e6},
	}, mcp.Deps{Transport: benchYes{}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = g.Close() })
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"tool-0","arguments":{"number":1,"text":"%s"},%s}}`, strings.Repeat("x", 1000),
		`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"load","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}`)
	header := http.Header{
		"Accept": {"application/json, text/event-stream"}, "Content-Type": {"application/json"}, "Authorization": {"Bearer " + issuer.Token(b, nil)},
		"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"tools/call"}, "Mcp-Name": {"tool-0"},
	}
	handler := g.Handler()
	b.ReportAllocs()
	for b.Loop() {
		r := httptest.NewRequestWithContext(b.Context(), http.MethodPost, resource, strings.NewReader(body))
		r.Header = header
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `"ran"`) {
			b.Fatal(w.Code, w.Body)
		}
	}
}

// benchYes is the way to a PDP that permits everything.
type benchYes struct{}

func (benchYes) RoundTrip(r *http.Request) (*http.Response, error) {
	_, err := io.Copy(io.Discard, r.Body)
	return &http.Response{
		StatusCode: http.StatusOK, ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header: http.Header{"Content-Type": {"application/json"}, "X-Request-Id": r.Header["X-Request-Id"]},
		Body:   io.NopCloser(strings.NewReader(`{"decision":true}`)),
	}, err
}

const benchTool = `{"name":"tool-0","inputSchema":{"type":"object","properties":{"number":{"type":"integer"},"text":{"type":"string"}},"required":["number"]}}`

// benchServer is an MCP server with one tool.
func benchServer(w http.ResponseWriter, r *http.Request) {
	var m struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
	}
	if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	result := `"content":[{"type":"text","text":"ran"}]`
	switch m.Method {
	case "server/discover":
		result = `"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"private"`
	case "tools/list":
		result = `"tools":[` + benchTool + `],"ttlMs":0,"cacheScope":"private"`
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete",%s}}`, m.ID, result)
}
