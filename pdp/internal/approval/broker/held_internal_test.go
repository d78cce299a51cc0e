package broker

import (
	"testing"

	"policy-service/evaluation"
	"policy-service/obligations"
	"policy-service/pdp"
	"policy-service/pdp/internal/approval"
)

// The record of a step has every part of the request that people were shown.
func TestShownRequest(t *testing.T) {
	t.Parallel()
	r, err := shownRequest([]byte(`{"subject":{"id":"1"},"action":{"name":"r"},"resource":{"id":"2"},"context":{"x":1}}`))
	if err != nil {
		t.Fatal(err)
	}
	got := []string{string(r.Subject), string(r.Action), string(r.Resource), string(r.Context)}
	for n, want := range []string{`{"id":"1"}`, `{"name":"r"}`, `{"id":"2"}`, `{"x":1}`} {
		if got[n] != want {
			t.Errorf("part %d is %s, want %s", n, got[n], want)
		}
	}
}

// While it is in doubt whether a decision used an approval, its caller asks for the round again, and not people.
func TestReasonOfARoundThatIsInDoubt(t *testing.T) {
	t.Parallel()
	promised := approval.ApprovalRequest{Terms: obligations.Terms{Rounds: 1}}
	known := approval.Approval{ApprovalRequest: promised, Status: approval.UsedUp, Used: []string{"used", "over"}, Reserved: []string{"in doubt"}, Spendings: []approval.Spending{
		{Decision: "in doubt"}, {Decision: "used"}, {Decision: "used, and its round is in doubt", Reserved: "round"},
	}}
	for decision, want := range map[string]evaluation.Reason{
		"in doubt":                        evaluation.ApprovalPending,
		"used, and its round is in doubt": evaluation.ApprovalPending,
		"used":                            evaluation.ApprovalExpired,
		"over":                            evaluation.ApprovalExpired,
		"round":                           evaluation.ApprovalOutOfScope,
		"another":                         evaluation.ApprovalOutOfScope,
	} {
		w := pdp.ApprovalRequest{Presented: "a", Continues: evaluation.Continuation{Decision: decision, Round: 1}}
		if got := reasonNotContinued(w, &known, known.Digest); got != want {
			t.Errorf("%s: got %s, want %s", decision, got, want)
		}
	}
	second := pdp.ApprovalRequest{Presented: "a", Continues: evaluation.Continuation{Decision: "used", Round: 2}}
	if got := reasonNotContinued(second, &known, known.Digest); got != evaluation.ApprovalOutOfScope {
		t.Errorf("a round that nobody approved: got %s", got)
	}
}
