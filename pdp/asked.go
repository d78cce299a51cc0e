package pdp

import (
	"slices"
	"strings"

	"policy-service/evaluation"
	"policy-service/obligations"
)

// waits reports whether the verdict is an allow that lacks only a person's approval.
func (w *verdict) waits() bool {
	_, _, ok := w.approvalOwed()
	return ok
}

// approvalOwed is the obligation that asks for an approval. There is one at most: two
// are in conflict.
func (w *verdict) approvalOwed() (o evaluation.Obligation, t obligations.Terms, ok bool) {
	if !w.decision.Allow {
		return o, t, false
	}
	for _, o := range w.decision.Obligations {
		if t, ok := obligations.TermsOf(o); ok {
			return o, t, true
		}
	}
	return o, t, false
}

// demandOfTenant reports whether the tenant alone demands the approval: neither a policy
// of the root asks for it, nor an obligation of the root. Two different obligations of the
// type are in conflict, so whatever a determining policy names of it is this one.
func (w *verdict) demandOfTenant(b *Bundle) bool {
	o, _, _ := w.approvalOwed()
	return w.view.tenant != evaluation.DefaultTenant && !slices.ContainsFunc(o.Policies, func(id string) bool {
		return b.demandsAsRoot(w.view.byID[id])
	})
}

// unite makes one answer of two that both hold, without what is approved.
func (w *verdict) unite(first *verdict, met evaluation.Obligation, approval string) {
	w.decision.Determining = union(first.decision.Determining, w.decision.Determining)
	for _, e := range first.decision.Errors {
		if !slices.Contains(w.decision.Errors, e) {
			w.decision.Errors = append(w.decision.Errors, e)
		}
	}
	slices.SortStableFunc(w.decision.Errors, func(a, b evaluation.PolicyError) int { return strings.Compare(a.Policy, b.Policy) })
	out := obligations.Unite(first.decision.Obligations, w.decision.Obligations)
	out.Obligations = slices.DeleteFunc(out.Obligations, func(o evaluation.Obligation) bool {
		return o.Type == met.Type && o.Properties.Value().Equal(met.Properties.Value())
	})
	w.decision.Met = []evaluation.Met{{ID: met.ID, Type: met.Type, Approval: approval}}
	applyObligations(&w.decision, out)
}

func union(a, b []string) []string {
	both := slices.Concat(a, b)
	slices.Sort(both)
	return slices.Compact(both)
}
