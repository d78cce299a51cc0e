package pdp

import (
	"context"

	"policy-service/pdp/internal/engine"
)

// Costs says what each policy takes that any of the calls is put to, the dearest
// first. It evaluates each by itself, over and over until ctx ends but at least
// once, and of every policy and call keeps the least time: to that, whatever else
// the machine does adds nothing. No answer is made of it, and nothing recorded.
func (p *PDP) Costs(ctx context.Context, calls []Call) ([]PolicyCost, error) {
	bundle := p.Bundle()
	if bundle == nil {
		return nil, ErrNoBundle
	}
	asked := make([]engine.Inquiry, len(calls))
	for i, call := range calls {
		p.stamp(&call) // once: every round asks the very same
		asked[i] = inquire(bundle, &call)
	}
	return engine.Costs(ctx, asked)
}
