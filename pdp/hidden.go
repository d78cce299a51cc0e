package pdp

import (
	"bytes"
	"context"

	"policy-service/evaluation"
	"policy-service/pdp/internal/engine"
)

// Unknown is the error of [PDP.Evaluate] if the decision may depend on values that masks hide.
type Unknown = engine.Unknown

// approvalOnRecord is the [Approvals] of a recorded decision that is decided again: the approval that it used. That approval
// is found for every request, unless it is bound to another one. Nothing is reserved, filed or offered.
type approvalOnRecord struct {
	id    string
	bound []byte
}

// Find implements [Approvals].
func (a approvalOnRecord) Find(_ context.Context, asks ApprovalRequest) (Found, error) {
	if a.bound != nil && !bytes.Equal(a.bound, asks.Binding) {
		return Found{}, nil
	}
	return Found{ID: a.id}, nil
}

// Reserve implements [Approvals].
func (a approvalOnRecord) Reserve(context.Context, ApprovalRequest, string) (Reservation, error) {
	return a, nil
}

// File implements [Approvals].
func (approvalOnRecord) File(context.Context, ApprovalRequest) (*evaluation.Approval, error) {
	return nil, nil
}

// Offer implements [Approvals].
func (approvalOnRecord) Offer(context.Context, ApprovalRequest, evaluation.Reason) (*evaluation.Access, error) {
	return nil, nil
}

// Again implements [Reservation].
func (approvalOnRecord) Again(context.Context, string) (bool, error) { return true, nil }

// Spent implements [Reservation].
func (approvalOnRecord) Spent(context.Context) error { return nil }

// InDoubt implements [Reservation].
func (approvalOnRecord) InDoubt() {}

// Binding is what an approval of a call is bound to by the bundle in force, nil if the call waits for none; see
// [ApprovalRequest.Binding]. If it may depend on values that masks hide, the error is an [*Unknown].
func (p *PDP) Binding(ctx context.Context, call Call) ([]byte, error) {
	p.begin(ctx, &call)
	in := inquire(p.Bundle(), &call)
	var w engine.Verdict
	var d evaluation.Decision
	if err := judge(ctx, &in, &w, &d); err != nil || !w.Waits() {
		return nil, err
	}
	a, _ := approvalRequest(&w, in.Bundle, &call)
	return a.Binding, nil
}
