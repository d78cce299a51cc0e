package broker

import (
	"context"
	"time"

	"policy-service/evaluation"
	"policy-service/pdp"
)

// Closed is in the place of a [Broker] whose store cannot be opened: nobody knows what a capability is worth, and whoever
// shows one gets the error.
type Closed struct{ Err error }

// Check implements [pdp.Capabilities].
func (c Closed) Check(context.Context, pdp.PresentedCapability) (pdp.HeldCapability, *evaluation.CapabilityAnswer, error) {
	return pdp.HeldCapability{}, nil, c.Err
}

// Reserve implements [pdp.Capabilities].
func (c Closed) Reserve(context.Context, pdp.HeldCapability, string) (pdp.Reservation, int, *evaluation.CapabilityAnswer, error) {
	return nil, 0, nil, c.Err
}

// Keep implements [pdp.Capabilities].
func (Closed) Keep(context.Context, pdp.HeldCapability, string, time.Time) {}
