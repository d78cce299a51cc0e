package recorder

import (
	"cmp"
	"fmt"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
)

// CallOf returns the call that a record was made of, so that its decision can be made again. The record must be resolved.
// Hidden has the masked values; see [record.Recorded.Request]. Approved is the approval that discharged an obligation.
// Without one, as in a deny, it is the approval that was presented, or else a made-up name: the record does not say which
// approval it was, and no decision depends on that.
//
// The record says whether a hidden value fit the schema of the policies that decided. For another bundle this is unknown.
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
	call := pdp.Call{
		Request: request,
		Asker: evaluation.Asker{
			Name:        r.Caller,
			Registered:  r.Declared != nil,
			Obligations: r.Declared,
			RequestID:   r.RequestID,
			TraceID:     r.TraceID,
		},
		Now:    now,
		Hidden: hidden,
	}
	switch {
	case r.Adopted != nil && (request.Draft == evaluation.October || r.Bundle == b.Digest()):
		// A request that lists the extension and did not adopt it was forwarded.
		call.Request.Draft, call.Forwards = evaluation.October, !*r.Adopted
	case r.Bundle == b.Digest():
		call.Request.Draft = evaluation.July
	}
	if c := r.Capability; c != nil {
		call.Capability = evaluation.Capability{Held: c.Held, ID: c.ID, Depth: c.Depth}
		call.NoCapability = c.Reason
	}
	if last := len(r.Discharged) - 1; last >= 0 {
		call.Approved, call.Continued = r.Discharged[0].Approval, r.Discharged[last].Continues
	} else if r.Approved {
		call.Approved = cmp.Or(request.Presented(), anApproval)
	}
	return call, nil
}

// anApproval stands for an approval whose name is not on record.
const anApproval = "on record"

// AnswerOf returns the answer of a decision as its record would; see [record.Recorded.Answer].
func AnswerOf(d evaluation.Decision) string {
	r := record.Recorded{Decision: &d.Allow, Possible: d.Possible.Bool()}
	for _, o := range d.Obligations {
		r.Obligations = append(r.Obligations, record.RecordedObligation{ID: o.ID, Type: o.Type})
	}
	return r.Answer()
}
