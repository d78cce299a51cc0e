package recorder

import (
	"fmt"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/decisionlog"
)

// CallOf is the call that a record of a decision was made of, to make the decision again. The record must be resolved.
// What the record hides is in Hidden; see [decisionlog.Recorded.Request]. Whether the policies were asked with an
// approval is no part of a call: the record says it.
func CallOf(r *decisionlog.Recorded, limits evaluation.Limits) (pdp.Call, error) {
	if r.Kind != decisionlog.KindDecision {
		return pdp.Call{}, fmt.Errorf("record %d is of kind %s: only a record of kind %s has one question",
			r.Sequence, r.Kind, decisionlog.KindDecision)
	}
	request, hidden, err := r.Request(limits)
	if err != nil {
		return pdp.Call{}, err
	}
	return pdp.Call{
		Request: request,
		Asker: evaluation.Asker{
			Name:        r.Caller,
			Registered:  r.Declared != nil,
			Obligations: r.Declared,
			RequestID:   r.RequestID,
			TraceID:     r.TraceID,
		},
		Now:    r.Now,
		Hidden: hidden,
	}, nil
}
