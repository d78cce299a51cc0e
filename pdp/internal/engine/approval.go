package engine

import (
	"slices"
	"strings"

	"policy-service/evaluation"
	"policy-service/obligations"
	"policy-service/pdp/internal/bundle"
)

// Waits reports whether the verdict is an allow that lacks only a person's approval.
func (w *Verdict) Waits() bool {
	_, _, ok := w.ApprovalOwed()
	return ok
}

// ApprovalOwed returns the obligation that asks for an approval. There is at most one, because
// two are in conflict.
func (w *Verdict) ApprovalOwed() (o evaluation.Obligation, t obligations.Terms, ok bool) {
	if !w.Decision.Allow {
		return o, t, false
	}
	for _, o := range w.Decision.Obligations {
		if t, ok := obligations.TermsOf(o); ok {
			return o, t, true
		}
	}
	return o, t, false
}

// DemandOfTenant reports whether the tenant alone demands the approval: no policy of the root
// asks for it, and no obligation of the root. Two different obligations of the type are in
// conflict. So if a determining policy names an obligation of this type, it is this one.
func (w *Verdict) DemandOfTenant(b *bundle.Bundle) bool {
	o, _, _ := w.ApprovalOwed()
	ofRoot := func(id string) bool { return b.DemandsAsRoot(w.view.ByID[id]) }
	return w.view.Tenant != evaluation.DefaultTenant && !slices.ContainsFunc(o.Policies, ofRoot)
}

// Unite adds the first verdict to this one, because both hold. It leaves out the obligation met,
// which an approval has discharged, in the way that by says.
func (w *Verdict) Unite(first *Verdict, met evaluation.Obligation, by evaluation.Met) {
	out := w.join(first)
	out.Obligations = slices.DeleteFunc(out.Obligations, func(o evaluation.Obligation) bool {
		return o.Type == met.Type && o.Properties.Value().Equal(met.Properties.Value())
	})
	by.ID, by.Type = met.ID, met.Type
	w.Decision.Met = []evaluation.Met{by}
	applyObligations(&w.Decision, out)
}

// join adds the policies and errors of another verdict to this one, and returns the obligations of both.
func (w *Verdict) join(first *Verdict) obligations.Resolution {
	both := slices.Concat(first.Decision.Determining, w.Decision.Determining)
	slices.Sort(both)
	w.Decision.Determining = slices.Compact(both)
	for _, e := range first.Decision.Errors {
		if !slices.Contains(w.Decision.Errors, e) {
			w.Decision.Errors = append(w.Decision.Errors, e)
		}
	}
	slices.SortStableFunc(w.Decision.Errors, func(a, b evaluation.PolicyError) int {
		return strings.Compare(a.Policy, b.Policy)
	})
	return obligations.Unite(first.Decision.Obligations, w.Decision.Obligations)
}
