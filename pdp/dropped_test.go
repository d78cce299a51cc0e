package pdp_test

import (
	"fmt"
	"strings"
	"testing"

	"policy-service/evaluation"
	"policy-service/pdp"
)

// TestNobodySearchesForAPropertyThatNoPolicySees: an explanation names what the schema does not declare, and what may be meant; and nothing that
// counts by other rules.
func TestNobodySearchesForAPropertyThatNoPolicySees(t *testing.T) {
	t.Parallel()
	p := one(`permit (principal is user, action == Action::"read", resource is doc);`,
		"bundle.yaml", "unknown_entities: evaluate\nparents: {user: {roles: role}}\n",
		"s.cedarschema", `entity role; entity user in [role] = {level?: Long}; entity doc = {labels?: {kind?: String}};
			action read appliesTo {principal: [user], resource: [doc], context: {note?: String, action?: {why?: String}}};`).Load(t)
	authzen := `{"subject":{"type":"user","id":"a","properties":{"level":1,"levle":2,"roles":["x"]}},"action":{"name":"read","properties":{"why":"w","how":"h"}},
		"resource":{"type":"doc","id":"d","properties":{"labels":{"kind":"k"},"lables":{}}},"context":{"note":"n","notes":"m","supported_obligations":[],"person":null}}`
	native := `{"tenant_id":"default","actor":{"actor_type":"user","actor_id":"a","levle":2},"action":"read","resource":{"type":"doc","id":"d"},"purpose":"p"}`
	told := func(d evaluation.Decision) string {
		var all []string
		for _, m := range d.Explain.Dropped {
			_, meant, _ := strings.Cut(m.Detail, "did you mean ")
			all = append(all, strings.TrimSpace(m.Pointer+" "+meant))
		}
		return strings.Join(all, ", ")
	}
	for body, want := range map[string]string{
		authzen: `/action/properties/how, /context/notes "note"?, /resource/properties/lables "labels"?, /subject/properties/levle "level"?`,
		native:  `/actor/levle "level"?, /purpose`,
	} {
		d, err := p.Evaluate(t.Context(), pdp.Call{Request: decoded(t, body), Explain: true})
		if err != nil || !d.Allow || told(d) != want {
			t.Errorf("got %s, %v\nwant %s", told(d), err, want)
		}
	}
	batch, err := evaluation.DecodeBatch(fmt.Appendf(nil, `%s,"evaluations":[{},{"context":{"nota":1}}]}`, strings.TrimSuffix(authzen, "}")), "", evaluation.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	decided, err := p.EvaluateBatch(t.Context(), pdp.BatchCall{Batch: batch, Explain: true})
	if err != nil || !strings.Contains(told(decided.Items[0]), "/context/notes") || !strings.Contains(told(decided.Items[1]), `/evaluations/1/context/nota "note"?`) {
		t.Errorf("%v, %+v", err, decided)
	}
}
