package mcp_test

import (
	"net/http/httptest"
	"net/url"
	"testing"

	"policy-service/pdp/mcp/mcptest"
)

// passage is a way from a client to an upstream.
type passage struct {
	name     string            // of the upstream
	upstream string            // its URL,
	command  []string          // or its command line,
	env      map[string]string // with these variables
	policies string            // the bundle that decides, by its name in package policies; "" permits everything
}

// translates reports whether what stands between understands what it hands on: a bare proxy neither decides, nor speaks
// to an upstream of the other era, nor to one over standard streams.
const translates = false

// through puts a gateway into the passage. It returns the URL for clients, and what they send as Authorization.
func through(t *testing.T, p passage) (at, authorization string) {
	t.Helper()
	to, err := url.Parse(p.upstream)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(mcptest.Proxy(to))
	t.Cleanup(s.Close)
	return s.URL, "Bearer of nothing"
}
