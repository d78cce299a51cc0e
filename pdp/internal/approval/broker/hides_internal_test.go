package broker

import (
	"testing"

	"policy-service/evaluation"
	"policy-service/pdp/internal/approval"
)

// What a mask makes of a name is another name.
func TestHidesNames(t *testing.T) {
	t.Parallel()
	agent := evaluation.Ref{Type: "agent", ID: "bot"}
	one := approval.Approval{ApprovalRequest: approval.ApprovalRequest{
		Tenant: "default", Subject: evaluation.Ref{Type: "user", ID: "zoe"}, Resource: evaluation.Ref{Type: "tool", ID: "t"}, Action: "use",
		Actors: evaluation.Actors{Agent: &agent},
	}}
	for shown, want := range map[string]bool{
		`{"subject":{"type":"user","id":"zoe"},"action":{"name":"use"},"resource":{"type":"tool","id":"t"},"context":{"agent":{"type":"agent","id":"bot"},"on_behalf_of":[],"n":"masked:aa"}}`:           false,
		`{"subject":{"type":"user","id":"masked:aa"},"action":{"name":"use"},"resource":{"type":"tool","id":"t"},"context":{"agent":{"type":"agent","id":"bot"},"on_behalf_of":[]}}`:                     true,
		`{"subject":{"type":"user","id":"zoe"},"action":{"name":"masked:aa"},"resource":{"type":"tool","id":"t"},"context":{"agent":{"type":"agent","id":"bot"},"on_behalf_of":[]}}`:                     true,
		`{"subject":{"type":"user","id":"zoe"},"action":{"name":"use"},"resource":{"type":"tool","id":"t masked:aa"},"context":{"agent":{"type":"agent","id":"bot"},"on_behalf_of":[]}}`:                 true,
		`{"subject":{"type":"user","id":"zoe"},"action":{"name":"use"},"resource":{"type":"tool","id":"t"},"context":{"agent":"masked:aa","on_behalf_of":[]}}`:                                           true,
		`{"subject":{"type":"user","id":"zoe"},"action":{"name":"use"},"resource":{"type":"tool","id":"t"},"context":{"on_behalf_of":[]}}`:                                                               true,
		`{"subject":{"type":"user","id":"zoe"},"action":{"name":"use"},"resource":{"type":"tool","id":"t"},"context":{"agent":{"type":"agent","id":"bot"},"on_behalf_of":[{"type":"user","id":"mia"}]}}`: true,
		`{}`: true,
	} {
		one.Shown = []byte(shown)
		if got := hidesNames(&one); got != want {
			t.Errorf("%s: %t", shown, got)
		}
	}
}
