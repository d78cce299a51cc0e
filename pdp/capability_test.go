package pdp_test

import (
	"testing"

	"policy-service/evaluation"
	"policy-service/pdp"
)

const capabilityPolicies = `
@id("suffices") permit (principal is agent, action == Action::"tool.invoke", resource is tool) when { context.pdp.capability.held };
@id("by_id") forbid (principal, action, resource) when { context.pdp.capability.id == "cap_bad" || context.pdp.capability.depth > 1 };
`

// TestCapabilityIsAFact: policies see the capability by which a call is decided, and see none otherwise.
func TestCapabilityIsAFact(t *testing.T) {
	t.Parallel()
	p := pdp.Of(loadFiles(t, map[string]string{"p.cedar": capabilityPolicies}), pdp.Options{})
	call := pdp.Call{Request: evaluation.Request{
		Tenant:   evaluation.DefaultTenant,
		Subject:  evaluation.Entity{Type: "agent", ID: "agent-a"},
		Action:   evaluation.Action{Name: "tool.invoke"},
		Resource: evaluation.Entity{Type: "tool", ID: "agent-b:dangerous_operation"},
	}}
	for _, c := range []struct {
		capability evaluation.Capability
		allow      bool
	}{
		{evaluation.Capability{}, false},
		{evaluation.Capability{Held: true, ID: "cap_good"}, true},
		{evaluation.Capability{Held: true, ID: "cap_bad"}, false},
		{evaluation.Capability{Held: true, ID: "cap_good", Depth: 2}, false},
	} {
		call.Capability = c.capability
		if d, err := p.Evaluate(t.Context(), call); err != nil || d.Allow != c.allow {
			t.Errorf("%+v: %v, %v", c.capability, d.Allow, err)
		}
	}
}
