package pdp

import (
	"context"

	"policy-service/pdp/internal/engine"
)

// Costs measures how long each policy takes that is evaluated for any of the calls. The policy
// that takes longest comes first. Costs evaluates each policy by itself, at least once, and then
// over and over until ctx ends. For every policy and call it keeps the least time, because
// other work on the machine adds the least to that one. It answers no call and records nothing.
func (p *PDP) Costs(ctx context.Context, calls []Call) ([]PolicyCost, error) {
	bundle := p.Bundle()
	if bundle == nil {
		return nil, ErrNoBundle
	}
	asked := make([]engine.Inquiry, len(calls))
	for i, call := range calls {
		p.setTime(&call) // once, so that every round asks the same question
		asked[i] = inquire(bundle, &call)
	}
	return engine.Costs(ctx, asked)
}
