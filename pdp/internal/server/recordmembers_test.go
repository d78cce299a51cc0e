package server_test

import (
	"strings"
	"testing"

	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/pdptest"
)

// TestRecordsSayWhatTheirDecisionHangsOn: the shape of a request, what the caller's key declares, what is masked, and which
// policy's allow a reason made a deny of; by that policy the record is found.
func TestRecordsSayWhatTheirDecisionHangsOn(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	grant := func(permission auth.Permission, types ...string) auth.Grant {
		return auth.Grant{Tenants: []string{"*"}, Permissions: []auth.Permission{permission}, Obligations: types}
	}
	pep, registered := addKey(t, data, "pep", grant(auth.Decide)), addKey(t, data, "registered", grant(auth.Decide, "notification"))
	auditor := addKey(t, data, "auditor", grant(auth.LogRead))
	s := pdptest.Start(t, pdptest.Bundle(approvalFiles()), withData(data))
	const asks = `{"subject":{"type":"user","id":"eve"},"action":{"name":"tool.invoke"},"resource":{"type":"tool","id":"push"}`
	const native = `{"tenant_id":"default","actor":{"actor_type":"user","actor_id":"eve"},"action":"tool.invoke","resource":{"type":"tool","id":"push"}}`
	const names = `"resource":{"type":"tool","id":"push"}`
	for _, c := range []struct {
		key, path, body string
		says            []string
	}{
		{pep, evaluationPath, asks + `}`, []string{`"caller":"key:pep","request"`, names + `},"decision":false,"reason":"approval_required","overruled":["ask"],"required":`}},
		{registered, evaluationPath, asks + `,"context":{"token":12345678901}}`, []string{
			`"caller":"key:registered","declared":["notification"],"request"`,
			`},"masked":[{"at":"/context/token","type":"number"}],"decision":false,"reason":"approval_required","overruled":["ask"]`,
		}},
		{pep, authorizePath, native, []string{names + `},"shape":"native","decision":true,"determining":["ask"],`}},
	} {
		got := s.Post(c.path, c.body, "Authorization", c.key, "X-Approval", "none")
		record := s.Get("/v1/decisions/"+got.Header.Get("X-Decision-Id"), "Authorization", auditor).Body
		for _, says := range c.says {
			if !strings.Contains(record, says) {
				t.Errorf("%s: got %s, and it does not say %s", c.body, record, says)
			}
		}
	}
	if page := s.Get("/v1/decisions?policy=ask", "Authorization", auditor).Body; strings.Count(page, `"kind":"decision"`) != 3 {
		t.Errorf("by the policy are found %s", page)
	}
	if page := s.Get("/v1/decisions?policy=two", "Authorization", auditor).Body; strings.Contains(page, `"kind":"decision"`) {
		t.Errorf("by another policy are found %s", page)
	}
}
