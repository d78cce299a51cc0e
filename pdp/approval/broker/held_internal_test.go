package broker

import (
	"testing"

	"policy-service/evaluation"
	"policy-service/obligations"
	"policy-service/pdp"
	"policy-service/pdp/approval"
)

// What an approval is bound to is compared whole, and nothing besides.
func TestBoundParts(t *testing.T) {
	t.Parallel()
	a := approval.Approval{}
	a.Terms = obligations.Terms{Material: []string{"subject", "resource", "context.x", "context"}}
	a.Members = []string{"y"}
	for request, want := range map[string]string{
		`{"subject":{"id":"1"},"action":{"name":"r"},"context":{"x":1,"y":2,"z":3,"agent":{"id":"q"}}}`: `` +
			`{"context.agent":{"id":"q"},"context.x":1,"context.y":2,"resource":null,"subject":{"id":"1"}}`,
		`{"subject":{"id":"1"},"resource":{"id":"2"},"context":null}`: `{"resource":{"id":"2"},"subject":{"id":"1"}}`,
		`{"subject":{"id":"1"},"resource":{"id":"2"}}`:                `{"resource":{"id":"2"},"subject":{"id":"1"}}`,
	} {
		if got, err := bound([]byte(request), a); err != nil || string(got) != want {
			t.Errorf("%s:\ngot  %s %v\nwant %s", request, got, err, want)
		}
	}
	if _, err := bound([]byte(`{"context":1}`), a); err == nil {
		t.Error("a context that is no object was read")
	}
}

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

// A format-1 file can have an approval request without a decision. No line of another kind is held because of that.
func TestLinesOfOtherKindsAreOfNoApproval(t *testing.T) {
	t.Parallel()
	ids := map[string]bool{"a1": true, "": true}
	for line, want := range map[string]bool{
		`{"id":"r1","kind":"checkpoint"}`:                                                   false,
		`{"id":"","kind":"event","event":"approvals_upgraded"}`:                             false,
		`{"id":"r1","kind":"approval","event":"filed","details":{"approval":"a1"}}`:         true,
		`{"id":"r1","kind":"approval","event":"filed","details":{"approval":"a2"}}`:         false,
		`{"id":"a1","kind":"decision"}`:                                                     true,
		`{"id":"d1","kind":"decision","decision":true,"discharged":[{"approval":"a1"}]}`:    true,
		`{"id":"d1","kind":"decision","decision":false,"discharged":[{"approval":"a1"}]}`:   false,
		`{"id":"d1","kind":"decision","decision":true,"discharged":[{"approval":"other"}]}`: false,
	} {
		if l, err := readLine([]byte(line)); err != nil || l.isOf(ids) != want {
			t.Errorf("%s: got %v, %v", line, !want, err)
		}
	}
}

// In records of before, the protocol of a vote stands where its way does now. No seal of then has either.
func TestWaysOfStepsOnRecord(t *testing.T) {
	t.Parallel()
	for details, want := range map[string][2]string{
		`{}`:                                {"", ""},
		`{"via":"mcp"}`:                     {"", ""},
		`{"via":"api"}`:                     {"api", ""},
		`{"via":"form","gateway":"key:gw"}`: {"form", "key:gw"},
	} {
		l, err := readLine([]byte(`{"id":"r","kind":"approval","event":"approve","details":` + details + `}`))
		if err != nil {
			t.Fatal(err)
		}
		if step := l.stepsOf()[0]; string(step.Via) != want[0] || step.Gateway != want[1] {
			t.Errorf("%s: got %+v", details, step)
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
