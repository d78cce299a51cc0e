package server_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"policy-service/pdp"
	"policy-service/pdp/internal/server"
)

// TestNothingIsDecidedInATenantThatDoesNotLoad: each question in it is 503 of a type of its own, its approval requests wait, and its
// auditor and the operator are shown why. All others are answered, also by a server that starts so.
func TestNothingIsDecidedInATenantThatDoesNotLoad(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeAll(t, dir, tenantFiles())
	c := openCounterOn(t, pdp.Dir(dir), public)
	waits := c.asks("pep", inAcme(tool("push", push))).Approval.ID
	p := c.program("acme-asker").in("acme")
	question := wants("push", push+`,"n":1`)
	task := p.submits(question + "," + p.denied(question).denial()).Task.ID
	whole, err := os.ReadFile(filepath.Join(dir, "tenants/acme/own.cedar"))
	must(t, err)

	must(t, c.Stop(t.Context()))
	must(t, os.WriteFile(filepath.Join(dir, "tenants/acme/own.cedar"), whole[:len(whole)-40], 0o600))
	c.open(pdp.Dir(dir), public)
	const body = `{"subject":{"type":"agent","id":"a"},"action":{"name":"tool.invoke"},"resource":{"type":"tool","id":"push"}}`
	for _, one := range []struct{ who, method, path, body string }{
		{"pep", "POST", "/tenants/acme/access/v1/evaluation", body},
		{"pep", "POST", "/tenants/acme/access/v1/evaluations", `{"evaluations":[` + body + `]}`},
		{"pep", "POST", "/v1/authorize", inAcme(tool("push", push))},
		{"searcher", "POST", "/tenants/acme/access/v1/search/action", `{"subject":{"type":"agent","id":"a"},"resource":{"type":"tool","id":"push"}}`},
		{"acme-asker", "GET", "/tenants/acme/access/v1/requests/" + task, ""},
		{"eve", "GET", "/v1/approvals/" + waits, ""},
		{"eve", "POST", "/v1/approvals/" + waits + "/decision", yes},
		{"acme-lead", "GET", "/v1/approvals", ""},
	} {
		if status, text := c.do(one.who, one.method, one.path, one.body); status != http.StatusServiceUnavailable || !strings.Contains(text, server.TenantUnavailable) {
			t.Errorf("%s %s: %d %s", one.method, one.path, status, text)
		}
	}
	if c.asks("pep", tool("push", push)).Approval == nil {
		t.Error("the default tenant is not answered")
	}
	if status, text := c.do("pep", "GET", "/.well-known/authzen-configuration/tenants/acme", ""); status != http.StatusOK {
		t.Errorf("metadata: %d %s", status, text)
	}
	for who, path := range map[string]string{"explainer": "/readyz", "auditor": "/v1/bundles"} {
		if status, text := c.do(who, "GET", path, ""); status != http.StatusOK || !strings.Contains(text, `"unavailable":["acme"]`) {
			t.Errorf("%s: %d %s", path, status, text)
		} else if path == "/readyz" && (!strings.Contains(text, `"status":"degraded"`) || !strings.Contains(text, `"tenants":["acme"],"problems":[{"severity":"error","file":"tenants/acme/own.cedar","line":`)) {
			t.Errorf("%s: %s", path, text)
		}
	}

	must(t, os.WriteFile(filepath.Join(dir, "tenants/acme/own.cedar"), whole, 0o600))
	must(t, c.Reload(t.Context()))
	c.says("mia", waits, "decision", yes, http.StatusOK)
	if status, text := c.do("acme-asker", "GET", "/tenants/acme/access/v1/requests/"+task, ""); status != http.StatusOK {
		t.Errorf("the task did not wait: %d %s", status, text)
	}
	must(t, c.Stop(t.Context()))
	refused := events(lines(t, c.data), "bundle_refused")
	if len(refused) != 1 || len(refused[0].Details["tenants"].([]any)) != 1 || refused[0].Details["tenants"].([]any)[0] != "acme" {
		t.Errorf("on record: %+v", refused)
	}
}
