package recorder

import (
	"cmp"
	"fmt"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
)

// CallOf is the call that a record of a decision was made of, to make the decision again. The record must be resolved.
// What the record hides is in Hidden; see [record.Recorded.Request]. The approval that the policies were asked with
// is the one that discharged an obligation. If none was discharged, as in a deny, it is the one that was presented, or
// else one with a made-up name: the record does not say which one it was, and a decision does not depend on it.
//
// The record says whether a hidden value could be put to the policies that decided. If b is another bundle, that is not
// known.
func CallOf(r *record.Recorded, b *pdp.Bundle, limits evaluation.Limits) (pdp.Call, error) {
	if r.Kind != format.KindDecision && r.Kind != format.KindPossible {
		return pdp.Call{}, fmt.Errorf("record %d is of kind %q: only a record of kind %s or %s has one question",
			r.Sequence, r.Kind, format.KindDecision, format.KindPossible)
	}
	if r.Items != nil {
		return pdp.Call{}, fmt.Errorf("record %d has the questions of a batch: name one, as ID.N", r.Sequence)
	}
	if r.Answer() == "" {
		return pdp.Call{}, fmt.Errorf("record %d has no answer", r.Sequence)
	}
	request, hidden, err := r.Request(limits)
	if err != nil {
		return pdp.Call{}, err
	}
	if len(hidden) > 0 && len(r.Details) > 0 { // what is hidden may be what was malformed
		return pdp.Call{}, fmt.Errorf("record %d: %w: it was malformed, and not all of it is known", r.Sequence, record.ErrNoRequest)
	}
	if r.Bundle != b.Digest() {
		for n := range hidden {
			hidden[n].Fit = evaluation.FitUnknown
		}
	}
	now := r.Now
	if now.IsZero() { // else it would be decided by the clock of today
		now = r.Time
	}
	capability, refused := capabilityOf(r)
	return pdp.Call{
		Capability:   capability,
		NoCapability: refused,

		Request: request,
		Asker: evaluation.Asker{
			Name:        r.Caller,
			Registered:  r.Declared != nil,
			Obligations: r.Declared,
			RequestID:   r.RequestID,
			TraceID:     r.TraceID,
		},
		Now:      now,
		Hidden:   hidden,
		Approved: approvalOf(r, &request),

		Continued: continuedIn(r),
	}, nil
}

// capabilityOf is the capability by which a decision was made, or why the one that was shown did not count.
func capabilityOf(r *record.Recorded) (held evaluation.Capability, refused string) {
	if c := r.Capability; c != nil {
		return evaluation.Capability{Held: c.Held, ID: c.ID, Depth: c.Depth}, c.Reason
	}
	return held, ""
}

// continuedIn is the round that a decision was of an approved call.
func continuedIn(r *record.Recorded) (c evaluation.Continuation) {
	for _, met := range r.Discharged {
		c = met.Continues
	}
	return c
}

// anApproval is the name of an approval that is not known.
const anApproval = "on record"

// approvalOf is "" if the policies were asked without an approval.
func approvalOf(r *record.Recorded, request *evaluation.Request) string {
	switch {
	case len(r.Discharged) > 0:
		return r.Discharged[0].Approval
	case r.Approved:
		return cmp.Or(request.Presented(), anApproval)
	}
	return ""
}

// AnswerOf is the word that a record of the decision has for the answer; see [record.Recorded.Answer].
func AnswerOf(d evaluation.Decision) string {
	r := record.Recorded{Decision: &d.Allow, Possible: d.Possible.Bool()}
	for _, o := range d.Obligations {
		r.Obligations = append(r.Obligations, record.RecordedObligation{ID: o.ID, Type: o.Type})
	}
	return r.Answer()
}
