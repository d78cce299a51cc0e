package broker

import (
	"slices"
	"strings"
	"time"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/approval"
	"policy-service/pdp/decisionlog"
	"policy-service/pdp/server/auth"
)

// Why is the reason why people are asked. Policies, places in files and known ids are for deciders and for callers that may have
// decisions explained. A program that asks could otherwise guess which ids exist.
func (s *Seen) Why() evaluation.ApprovalWhy {
	a := s.Approval
	w := evaluation.ApprovalWhy{Decision: a.Decision, ValidFor: span(a.Terms.ValidFor), Alike: []evaluation.AlikeText{}}
	w.Obligation.Name = a.Obligation
	if !s.decides && !s.voted && !s.by.caller.May(auth.Explain) {
		return w
	}
	w.Alike = s.by.alike(a)
	b := s.by.options.PDP().Bundle()
	if b != nil && b.Digest() == a.Bundle {
		w.Obligation.At = b.ObligationPosition(a.Tenant, a.Obligation)
	}
	r := s.by.recordOf(a)
	if r == nil {
		return w
	}
	w.Policies = []evaluation.PolicyPlace{}
	determined := slices.Concat(r.Determining, r.Overruled)
	slices.Sort(determined)
	for _, id := range slices.Compact(determined) {
		w.Policies = append(w.Policies, evaluation.PolicyPlace{ID: id, At: positionIn(b, r.Bundle, a.Tenant, id)})
	}
	return w
}

// positionIn is where a policy stands, if the bundle is still the one that decided.
func positionIn(b *pdp.Bundle, digest, tenant, id string) string {
	if b == nil || b.Digest() != digest {
		return ""
	}
	return b.PolicyPosition(tenant, id)
}

// recordOf is the record of the decision that waits, nil if the log has none that can be read.
func (b *Broker) recordOf(a approval.Approval) *decisionlog.Recorded {
	record, err := b.options.Log.ByID(a.Decision)
	if err != nil {
		return nil
	}
	r, err := decisionlog.Parse(record.Line)
	if err != nil || r.Tenant != a.Tenant {
		return nil
	}
	return r
}

// span is a length of time as policies write it.
func span(d time.Duration) string {
	text := d.String()
	for _, none := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, none) {
			text = text[:len(text)-2]
		}
	}
	return text
}
