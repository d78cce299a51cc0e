package server_test

import (
	"fmt"
	"strings"
	"testing"

	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/pdptest"
)

// A gateway, which asks for others, learns in which value a deny lies. Whoever has no permission relay gets the answer without.
func TestPointerForGateways(t *testing.T) {
	t.Parallel()
	data, all := t.TempDir(), []string{"default"}
	pep := addKey(t, data, "pep", auth.Grant{Tenants: all, Permissions: []auth.Permission{auth.Decide, auth.Explain}})
	gateway := addKey(t, data, "gateway", auth.Grant{Tenants: all, Permissions: []auth.Permission{auth.Decide, auth.Relay}})
	untyped := map[string]string{
		"a.cedar": `permit (principal, action == Action::"read", resource) when { context.arguments.n < 5 };
			permit (principal, action == Action::"write", resource);
			forbid (principal, action == Action::"write", resource) when { context.arguments.n > 5 };`,
	}
	typed := map[string]string{
		"a.cedar":            `permit (principal, action, resource) when { context.arguments.n < 5 };`,
		"schema.cedarschema": `entity user, doc; action read, write appliesTo { principal: user, resource: doc, context: { arguments: { n: Long } } };`,
	}
	for _, c := range []struct {
		files             map[string]string
		action, arguments string
		reason, pointer   string // of the context
	}{
		{untyped, "read", `{"n":1,"more":[null]}`, "", ""},
		{untyped, "read", `{"n":7,"more":[null]}`, "", ""},
		{untyped, "read", `{"n":1.5}`, "", "/n"},
		{untyped, "write", `{"n":[1,[[2]]]}`, "policy_error", "/n/1/0"},
		{untyped, "write", `{"n":"x","more":0.5}`, "policy_error", ""}, // it is no unusable value that errs
		{typed, "read", `{"n":1.5}`, "schema_mismatch", "/n"},
		{typed, "read", `{"n":1,"more":[[[]]]}`, "", ""},
	} {
		s := pdptest.Start(t, pdptest.Bundle(c.files), withData(data))
		question := `{"subject":{"type":"user","id":"a"},"action":{"name":"` + c.action + `"},"resource":{"type":"doc","id":"d"},"context":{"arguments":` + c.arguments + `}}`
		for _, key := range []string{pep, gateway} {
			for _, at := range []string{"", "/evaluations/0"} {
				var members []string
				if c.reason != "" {
					members = append(members, fmt.Sprintf(`"reason":%q`, c.reason))
				}
				if key == gateway && c.pointer != "" {
					members = append(members, fmt.Sprintf(`"pointer":%q`, at+"/context/arguments"+c.pointer))
				}
				want := `{"decision":` + fmt.Sprint(len(members) == 0 && c.reason+c.pointer == "" && !strings.Contains(c.arguments, "7"))
				if len(members) > 0 {
					want += `,"context":{` + strings.Join(members, ",") + `}`
				}
				path, body := "/access/v1/evaluation", question
				if want += "}"; at != "" {
					path, body, want = "/access/v1/evaluations", `{"evaluations":[`+question+`]}`, `{"evaluations":[`+want+`]}`
				}
				if got := s.Post(path, body, "Authorization", key); strings.TrimSpace(got.Body) != want {
					t.Errorf("%s %s: %s, want %s", c.action, c.arguments, got.Body, want)
				}
			}
		}
		stopAndWait(t, s)
	}
}
