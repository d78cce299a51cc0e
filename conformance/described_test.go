package conformance_test

import (
	"net/http"
	"testing"

	"policy-service/pdp"
	"policy-service/pdp/pdptest"
)

// All that the suite asks of our server and hears from it, at the root and of a
// tenant, is as the OpenAPI document says.
func TestTrafficIsAsDescribed(t *testing.T) {
	t.Parallel()
	server := pdptest.Start(t, pdp.Dir(bundleWithTenant(t)))
	document := pdptest.NewOpenAPI(t)
	client := &http.Client{Transport: document.RoundTrip(http.DefaultTransport)}
	for _, path := range []string{"", "/tenants/acme"} {
		run(t, mode{path: path}, server.URL, client)
	}
	for _, operation := range []string{
		"POST /access/v1/evaluation", "POST /access/v1/evaluations", "POST /access/v1/search/subject", "POST /access/v1/search/resource",
		"POST /access/v1/search/action", "POST /v1/authorize", "GET /.well-known/authzen-configuration", "GET /.well-known/jwks.json",
		"POST /tenants/{tenant}/access/v1/evaluation", "POST /tenants/{tenant}/access/v1/evaluations",
		"POST /tenants/{tenant}/access/v1/search/subject", "GET /.well-known/authzen-configuration/tenants/{tenant}",
	} {
		if !document.Asked(operation) {
			t.Errorf("%s was not asked, or is not described", operation)
		}
	}
}
