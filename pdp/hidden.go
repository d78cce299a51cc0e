package pdp

import (
	"context"

	"policy-service/evaluation"
	"policy-service/pdp/internal/engine"
)

// Unknown is the error of [PDP.Evaluate] if the decision may depend on values that masks hide.
type Unknown = engine.Unknown

// approvalOnRecord is the [Approvals] of a recorded decision that is decided again: the id of the
// approval that it used. That approval is found for every request. Nothing is reserved, filed or
// offered.
type approvalOnRecord string

// Find implements [Approvals].
func (a approvalOnRecord) Find(context.Context, ApprovalRequest) (Found, error) {
	return Found{ID: string(a)}, nil
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
func (approvalOnRecord) Spent(context.Context) {}

// InDoubt implements [Reservation].
func (approvalOnRecord) InDoubt() {}
