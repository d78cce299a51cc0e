package broker

import (
	"slices"
	"strings"
	"time"

	"policy-service/pdp"
	"policy-service/pdp/approval"
	"policy-service/pdp/decisionlog"
	"policy-service/pdp/server/auth"
)

// Why says why people are asked.
type Why struct {
	// Obligation is the one that demands the approval.
	Obligation WhyObligation `json:"obligation"`
	// Policies determined the decision that waits. They are nil if the caller may not know them, or if the record of the
	// decision is gone or cannot be read.
	Policies []WhyPolicy `json:"policies,omitzero"`
	Decision string      `json:"decision"`
	// ValidFor is how long an approval counts, from the vote that makes it one, as policies write it: 10m.
	ValidFor string `json:"valid_for"`
	// Alike are texts in the request that look like a known id. There are none if the caller may not know such ids.
	Alike []Alike `json:"alike"`
}

// WhyObligation is an obligation by its name. At is its place, file:line:column, "" if nobody knows it any more.
type WhyObligation struct {
	Name string `json:"name"`
	At   string `json:"at,omitempty"`
}

// WhyPolicy is a policy by its id. At is its place, as that of an obligation.
type WhyPolicy struct {
	ID string `json:"id"`
	At string `json:"at,omitempty"`
}

// Why says why people are asked. Policies, places in files and known ids are for people who decide and for callers that
// may have decisions explained. Whoever asks for something could otherwise guess which ids there are.
func (s *Seen) Why() Why {
	a := s.Approval
	w := Why{Obligation: WhyObligation{Name: a.Obligation}, Decision: a.Decision, ValidFor: span(a.Terms.ValidFor), Alike: []Alike{}}
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
	w.Policies = []WhyPolicy{}
	determined := slices.Concat(r.Determining, r.Overruled)
	slices.Sort(determined)
	for _, id := range slices.Compact(determined) {
		w.Policies = append(w.Policies, WhyPolicy{id, positionIn(b, r.Bundle, a.Tenant, id)})
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
