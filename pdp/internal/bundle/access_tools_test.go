package bundle_test

import (
	"slices"
	"testing"

	"policy-service/evaluation"
	"policy-service/pdp"
)

// A gateway with `ask: tool` asks about an action of its own for each tool, which a schema has
// below tool.invoke. Declarations are about those, too.
func TestAccessWhereEachToolIsAnAction(t *testing.T) {
	t.Parallel()
	p := small{
		"access/wiki.yaml": "mode: allowlist\nrules: [{agent: alice, tools: [read]}]\n",
		"access/crm.yaml":  "mode: denylist\nrules: [{agent: bob, tools: [drop]}]\n",
		"p.cedar":          `@id("all") permit(principal == agent::"bob", action, resource is tool);`,
		"schema.cedarschema": `entity agent; entity tool;
action "tool.invoke" appliesTo { principal: [agent], resource: [tool] };
action "wiki:read", "crm:drop" in ["tool.invoke"] appliesTo { principal: [agent], resource: [tool] };
action "tool.other" appliesTo { principal: [agent], resource: [tool] };`,
	}.Load(t)
	for _, c := range []struct {
		subject, action, tool string
		allow                 bool
		by                    string
	}{
		{"alice", "tool.invoke", "wiki:read", true, "access.wiki.1"},
		{"alice", "wiki:read", "wiki:read", true, "access.wiki.1"},
		{"bob", "wiki:read", "wiki:read", false, "access.wiki.guard"},
		{"bob", "crm:drop", "crm:drop", false, "access.crm.1"},
		{"alice", "crm:drop", "crm:drop", true, "access.crm.default"},
		{"bob", "tool.other", "wiki:read", true, "all"},
	} {
		d, err := p.Evaluate(t.Context(), pdp.Call{Request: evaluation.Request{
			Tenant: "default", Subject: evaluation.Entity{Type: "agent", ID: c.subject},
			Action: evaluation.Action{Name: c.action}, Resource: evaluation.Entity{Type: "tool", ID: c.tool},
		}})
		if err != nil || d.Allow != c.allow || !slices.Equal(d.Determining, []string{c.by}) {
			t.Errorf("%s %s %s: %t by %v, %v", c.subject, c.action, c.tool, d.Allow, d.Determining, err)
		}
	}
}
