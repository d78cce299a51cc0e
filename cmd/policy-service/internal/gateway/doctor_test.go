package gateway

import (
	"net/http"
	"strings"
	"testing"

	"policy-service/pdp/mcp"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/server"
)

// A PDP that calls itself otherwise than the gateway does names requests for approval by addresses that the gateway
// does not ask.
func TestDoctorComparesAddresses(t *testing.T) {
	start := func(public string) *pdptest.Server {
		return pdptest.Start(t, pdptest.Bundle(map[string]string{"all.cedar": `permit (principal, action == Action::"read", resource);`}), func(c *server.Config) {
			c.PublicURL = public
		})
	}
	plain, elsewhere := start(""), start("http://LOCALHOST/authz")
	for name, test := range map[string]struct{ url, want string }{
		"the same":        {plain.URL, ""},
		"the same, slash": {plain.URL + "/", ""},
		"localhost":       {strings.Replace(plain.URL, "127.0.0.1", "localhost", 1), plain.URL},
		"another":         {elsewhere.URL, "http://localhost:80, and pdp.url is " + elsewhere.URL},
	} {
		x := &exam{ctx: t.Context(), told: mcp.Config{PDP: mcp.PDPConfig{URL: test.url}}}
		x.addresses(http.DefaultClient)
		switch {
		case test.want == "" && len(x.findings) == 0:
		case test.want == "" || len(x.findings) != 1 || !x.findings[0].Bites || !strings.Contains(x.findings[0].Message, test.want):
			t.Errorf("%s: %+v", name, x.findings)
		}
	}
}
