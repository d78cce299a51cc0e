package broker

import (
	"context"
	"time"

	"policy-service/evaluation"
	"policy-service/pdp"
)

// Validity is what a capability is worth that a call shows.
type Validity struct {
	Active                       bool `json:"active"`
	*evaluation.CapabilityAnswer `json:",inline"`
	Expires                      time.Time `json:"expires,omitzero"`
}

// Validate says what a capability is worth that a call shows, and spends nothing. The policies are not asked.
func (b *Broker) Validate(ctx context.Context, asker evaluation.Asker, r evaluation.Request) (v Validity, err error) {
	held, more, err := b.options.PDP().CheckCapability(ctx, pdp.Call{Request: r, Asker: asker})
	if err != nil || more != nil {
		return Validity{CapabilityAnswer: more}, err
	}
	v = Validity{true, &evaluation.CapabilityAnswer{ID: held.ID}, held.Expires.UTC()}
	if held.Counted {
		v.UsesLeft = &held.Left
	}
	return v, nil
}
