package server_test

import (
	"cmp"
	"fmt"
	"strings"
	"testing"

	"policy-service/pdp"
	"policy-service/pdp/pdptest"
)

// claim is one way for a caller to say that its request was approved: members of
// the objects of a request, and what comes beside the body.
type claim struct {
	subject, action, resource, context, top string
	headers                                 []string
	query                                   string
	refused                                 bool // as no request at all
}

var claims = map[string]claim{
	"none":                               {},
	"justification":                      {context: `"justification":"approved"`},
	"justification, an object":           {context: `"justification":{"approved":true,"by":"boss"}`},
	"approved":                           {context: `"approved":true`},
	"approved, a string":                 {context: `"approved":"true"`},
	"approved, a number":                 {context: `"approved":1`},
	"approval":                           {context: `"approval":{"id":"00000000-0000-7000-8000-000000000001","status":"approved","approved":true}`},
	"approval, a list":                   {context: `"approval":[{"approved":true}]`, refused: true},
	"approval, without an id":            {context: `"approval":{"approved":true}`, refused: true},
	"approval_id, a number":              {context: `"approval_id":1`, refused: true},
	"two approvals":                      {context: `"approval":{"id":"x"},"approval_id":"y"`, refused: true},
	"approval_id":                        {context: `"approval_id":"00000000-0000-7000-8000-000000000001"`},
	"evaluation_id":                      {context: `"evaluation_id":"00000000-0000-7000-8000-000000000001"`},
	"access_request":                     {context: `"access_request":{"id":"x","status":"approved"}`},
	"everything at once":                 {context: `"justification":"approved","approved":true,"approval":{"id":"x","approved":true},"approval_id":"x","evaluation_id":"x","access_request":{"approved":true}`},
	"in other letters":                   {context: `"Approved":true,"JUSTIFICATION":"approved","approved ":true`},
	"escaped":                            {context: `"\u0061pproved":true`},
	"approved twice":                     {context: `"approved":false,"\u0061pproved":true`, refused: true},
	"a member with a dot":                {context: `"pdp.approved":true`},
	"a context in the context":           {context: `"context":{"approved":true,"pdp":{"approved":true}}`},
	"arguments":                          {context: `"arguments":{"approved":true,"justification":"approved"}`},
	"an agent of that name":              {context: `"agent":"approved"`},
	"purpose":                            {context: `"purpose":"approved"`},
	"pdp":                                {context: `"pdp":{"approved":true}`, refused: true},
	"pdp, escaped":                       {context: `"\u0070dp":{"approved":true}`, refused: true},
	"pdp, a bool":                        {context: `"pdp":true`, refused: true},
	"pdp, null":                          {context: `"pdp":null`},
	"the action's properties":            {context: `"action":{"approved":true}`, refused: true},
	"no obligations beside it":           {context: `"obligations":[],"required_obligations":[]`},
	"as discharged":                      {context: `"discharged":[{"id":"approval_required","approval":"x"}]`},
	"a property of the subject":          {subject: `"approved":true,"justification":"approved","approval":{"approved":true},"pdp":{"approved":true}`},
	"a property of the resource":         {resource: `"approved":true,"justification":"approved","approval":{"approved":true},"pdp":{"approved":true}`},
	"a property of the action":           {action: `"approved":true,"justification":"approved","approval":{"approved":true},"pdp":{"approved":true}`},
	"a reference to an approval":         {subject: `"approval":{"__entity":{"type":"Approval","id":"x"}}`, refused: true},
	"beside the context":                 {top: `"approved":true,"justification":"approved","approval":{"approved":true},"approval_id":"x"`},
	"as an answer":                       {top: `"decision":true,"allow":true,"obligations":{"approval_required":false}`},
	"another tenant beside the context":  {top: `"tenant":"acme","tenantId":"acme"`},
	"headers":                            {headers: []string{"X-Approved", "true", "X-Approval", "00000000-0000-7000-8000-000000000001", "X-Approval-Id", "x", "X-Justification", "approved", "X-Obligations", "none"}},
	"headers of a proxy":                 {headers: []string{"X-Remote-User", "root", "X-Original-Url", "/approved", "X-Http-Method-Override", "GET", "Prefer", "approved"}},
	"a header that names the decision":   {headers: []string{"X-Decision-Id", "00000000-0000-7000-8000-000000000001"}},
	"a request id":                       {headers: []string{"X-Request-ID", "approved"}},
	"a query":                            {query: "?approved=true&justification=approved&context.approved=true&approval_id=x"},
	"a declaration of more than a type":  {context: `"supported_obligations":["approved","approval_required:done","APPROVAL_REQUIRED",""]`},
	"a declaration that is no list":      {context: `"supported_obligations":{"approval_required":false}`, refused: true},
	"a declaration of the approval done": {context: `"supported_obligations":[{"approval_required":true}]`, refused: true},
}

// readers are policies whose authors believe what callers say. Each of the first
// permits besides; the others have the obligation stand aside for a claim.
var readers = map[string]string{
	"policies that read no claim": `
@id("obliging") @obligation("approval_required") permit (principal is agent, action == Action::"tool.invoke", resource is tool);`,
	"policies that permit on a claim": `
@id("obliging") @obligation("approval_required") permit (principal is agent, action == Action::"tool.invoke", resource is tool);
permit (principal is agent, action, resource) when { context.approved };
permit (principal is agent, action, resource) when { context.approved == "true" };
permit (principal is agent, action, resource) when { context has approved };
permit (principal is agent, action, resource) when { context.justification == "approved" };
permit (principal is agent, action, resource) when { context has justification };
permit (principal is agent, action, resource) when { context.approval.approved };
permit (principal is agent, action, resource) when { context has approval || context has approval_id || context has evaluation_id || context has access_request };
permit (principal is agent, action, resource) when { context.pdp.approved };
permit (principal is agent, action, resource) when { context.action has approved && context.action.approved };
permit (principal is agent, action, resource) when { context has context && context.context.approved };
permit (principal is agent, action, resource) when { context has Approved && context.Approved };
permit (principal is agent, action, resource) when { principal has approved && principal.approved };
permit (principal is agent, action, resource) when { resource has approved || resource has labels && resource.labels has approved };`,
	"policies that oblige without a claim": `
@id("obliging") @obligation("approval_required") permit (principal is agent, action == Action::"tool.invoke", resource is tool)
unless { context has approved || context has justification || context has approval || context has approval_id || context has evaluation_id || context has access_request || context.pdp.approved };
permit (principal is agent, action == Action::"tool.invoke", resource is tool)
when { context has approved || context has justification || context has approval || context has approval_id || context has evaluation_id || context has access_request || context.pdp.approved };
@id("claimed") forbid (principal, action, resource) when { context has supported_obligations };`,
}

// No claim of an approval counts, wherever it stands, over whatever door it
// comes, and also where policies were written that believe it.
func TestNoClaimOfApprovalCounts(t *testing.T) {
	t.Parallel()
	for name, policies := range readers {
		t.Run(name, func(t *testing.T) {
			s := pdptest.Start(t, pdptest.Bundle(map[string]string{
				"policy.cedar": policies, "tenants/acme/own.cedar": `permit (principal is agent, action, resource) when { context has approved || context.pdp.approved };`,
				"entities/e.json": `[{"uid":{"type":"tool","id":"t"},"attrs":{},"parents":[]}]`,
			}))
			for name, c := range claims {
				for _, tenant := range []string{"default", "acme"} {
					c.standsIn(t, s, name, tenant)
				}
			}
		})
	}
}

// standsIn puts a claim over every door.
func (c claim) standsIn(t *testing.T, s *pdptest.Server, name, tenant string) {
	t.Helper()
	prefix := ""
	if tenant != "default" {
		prefix = "/tenants/" + tenant
	}
	owes := `[{"id":"approval_required","type":"approval_required","properties":{}}]`
	for _, door := range []struct{ path, body, want string }{
		{"/v1/authorize", c.native(tenant), `{"allow":true,"obligations":{"approval_required":true}}`},
		{prefix + "/access/v1/evaluation", c.authzen(""), `{"decision":false,"context":{"reason":"approval_required","required_obligations":["approval_required"]}}`},
		{prefix + "/access/v1/evaluation", c.authzen(`"supported_obligations":["approval_required"]`), `{"decision":true,"context":{"obligations":` + owes + `}}`},
		{prefix + "/access/v1/evaluations", `{"evaluations":[` + c.authzen("") + `]}`, `{"evaluations":[{"decision":false,"context":{"reason":"approval_required","required_obligations":["approval_required"]}}]}`},
		{prefix + "/access/v1/search/resource", c.authzen(""), `{"results":[]}`},
		{prefix + "/access/v1/search/resource", c.authzen(`"supported_obligations":["approval_required"]`), `{"results":[{"type":"tool","id":"t","obligations":` + owes + `,"context":{"obligations":` + owes + `}}]}`},
	} {
		if door.body == "" {
			continue
		}
		got := s.Post(door.path+c.query, door.body, c.headers...)
		switch {
		case c.refused && strings.HasSuffix(door.path, "/evaluations") && got.Status == 200:
			if !strings.HasPrefix(got.Body, `{"evaluations":[{"decision":false,"context":{"error":{"status":400,`) {
				t.Errorf("%s: %s %s\n got %s, want a malformed item", name, door.path, door.body, got.Body)
			}
		case c.refused && got.Status == 400, c.refused && strings.Contains(door.path, "search") && got.Body == `{"results":[]}`:
		case c.refused || got.Status != 200 || got.Body != door.want:
			t.Errorf("%s: %s %s\n got %d %s\nwant %s", name, door.path, door.body, got.Status, got.Body, door.want)
		}
	}
}

func members(all ...string) string {
	var some []string
	for _, m := range all {
		if m != "" {
			some = append(some, m)
		}
	}
	return strings.Join(some, ",")
}

// authzen is "" where the claim leaves no room for the declaration.
func (c claim) authzen(declared string) string {
	if declared != "" && strings.Contains(c.context, "supported_obligations") {
		return ""
	}
	return fmt.Sprintf(`{%s}`, members(
		fmt.Sprintf(`"subject":{"type":"agent","id":"a","properties":{%s}}`, c.subject), fmt.Sprintf(`"action":{"name":"tool.invoke","properties":{%s}}`, c.action),
		fmt.Sprintf(`"resource":{"type":"tool","id":"t","properties":{%s}}`, c.resource), fmt.Sprintf(`"context":{%s}`, members(c.context, declared)), c.top))
}

func (c claim) native(tenant string) string {
	if strings.Contains(c.top, `"tenant_id"`) || c.refused && cmp.Or(c.subject, c.context) == "" {
		return ""
	}
	return fmt.Sprintf(`{%s}`, members(fmt.Sprintf(`"tenant_id":%q`, tenant), fmt.Sprintf(`"actor":{%s}`, members(`"actor_id":"a","actor_type":"agent"`, c.subject)), `"action":"tool.invoke"`,
		fmt.Sprintf(`"resource":{"type":"tool","id":"t","labels":{%s}}`, c.resource), fmt.Sprintf(`"context":{%s}`, c.context), c.top))
}

// A tenant cannot define the obligation away, and no other way in leads round it.
func TestTenantsKeepTheRootsApproval(t *testing.T) {
	t.Parallel()
	root := readers["policies that read no claim"]
	for name, definitions := range map[string]string{
		"as another type": "approval_required: {type: log}", "with other properties": "approval_required: {type: approval_required, properties: {uses: 1000000}}", "for denies": "approval_required: {type: approval_required, on: deny}",
	} {
		source := pdptest.Bundle(map[string]string{"policy.cedar": root, "tenants/acme/obligations.yaml": definitions})
		if _, problems := pdp.Load(source); !problems.Refuse() {
			t.Errorf("%s: loads", name)
		}
	}
	s := pdptest.Start(t, pdptest.Bundle(map[string]string{"policy.cedar": root, "tenants/acme/own.cedar": `@id("free") permit (principal, action, resource) when { true };`}))
	c := claim{}
	for _, test := range []struct {
		path, body string
		status     int
		want       string
	}{
		{"/v1/authorize", c.native("acme"), 200, `{"allow":true,"obligations":{"approval_required":true}}`},
		{"/v1/authorize", c.native("ACME"), 403, ""}, {"/v1/authorize", c.native(""), 403, ""}, {"/v1/authorize", c.native("default/../acme"), 403, ""},
		{"/tenants/default/access/v1/evaluation", c.authzen(""), 404, ""}, {"/tenants//access/v1/evaluation", c.authzen(""), 404, ""}, {"/tenants/nosuch/access/v1/evaluation", c.authzen(""), 404, ""},
		{"/v1/authorize", c.authzen(""), 400, ""}, {"/access/v1/evaluation", c.native("acme"), 400, ""},
	} {
		if got := s.Post(test.path, test.body); got.Status != test.status || test.want != "" && got.Body != test.want {
			t.Errorf("%s %s: got %d %s, want %d %s", test.path, test.body, got.Status, got.Body, test.status, test.want)
		}
	}
}
