package tools_test

import (
	"slices"
	"strings"
	"testing"

	"policy-service/pdp/internal/command/cli"
	"policy-service/pdp/internal/command/gateway"
	"policy-service/pdp/internal/mcp"
)

// What a configuration has nobody asked about is found before a person waits for it.
func TestEmbeddedPeopleAreChecked(t *testing.T) {
	t.Parallel()
	asks := func(name string) map[string]string {
		return map[string]string{
			"p.cedar":     `@id("p") @obligation("` + name + `") permit (principal, action == Action::"tool.invoke", resource == tool::"jira:browse");` + "\n",
			"bundle.yaml": "allow_self_approval: [confirm]\n",
			"obligations.yaml": `confirm: {type: approval_required, properties: {template: confirm, message: "x"}}
both: {type: approval_required, properties: {template: confirm, quorum: 2, message: "x"}}
second-person: {type: approval_required, properties: {template: second-person, message: "x"}}
`}
	}
	kept := instead("{policies: policies}", "{policies: policies, data: data}")
	elsewhere := instead("  embedded: {policies: policies}\n", "  url: http://127.0.0.1:1\n  key_file: k\n")
	issuers := strings.Replace(elsewhere, "  static: {sub: alice, client_id: agent-1}\n", "  issuers: [{issuer: \"https://idp.example\", algorithms: [ES256]}]\n", 1)
	noForm := gateway.NoForm(mcp.Config{Identity: mcp.IdentityConfig{Static: &mcp.StaticConfig{Sub: "alice"}}})
	if !strings.HasPrefix(noForm, "no form is shown to the person of identity.static") {
		t.Errorf("got %q", noForm)
	}
	for name, test := range map[string]struct {
		setup
		want []string
	}{
		"a PDP that hears the person":           {setup{config: kept, policies: asks("confirm")}, nil},
		"a PDP that hears nobody else":          {setup{config: kept, policies: asks("second-person")}, []string{"policies/obligations.yaml:3:1: warning: second-person: " + gateway.NobodyElse}},
		"two people":                            {setup{config: kept, policies: asks("both")}, []string{"policies/obligations.yaml:2:1: warning: both: " + gateway.NobodyElse}},
		"a PDP that keeps nothing":              {setup{config: sound, policies: asks("confirm")}, []string{"g.yaml:5:13: warning: " + gateway.NoData}},
		"a PDP elsewhere, and nobody's token":   {setup{config: elsewhere}, []string{"g.yaml:3:11: warning: " + noForm}},
		"a PDP elsewhere, and people of issuer": {setup{config: issuers}, nil},
	} {
		lines, code := checked(t, test.write(t))
		if got := lines[:len(lines)-1]; !slices.Equal(got, test.want) || code == cli.No {
			t.Errorf("%s: got\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(test.want, "\n"))
		}
	}
}
