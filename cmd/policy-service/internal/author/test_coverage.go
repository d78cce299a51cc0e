package author

import (
	"policy-service/evaluation"
	"policy-service/pdp"
)

// cover notes the policies a test satisfied, whether or not they determined the
// decision: a permit that a forbid overrode was satisfied too.
func (r *results) cover(tenant string, d evaluation.Decision) {
	if d.Explain == nil {
		return
	}
	if r.covered == nil {
		r.covered = make(map[[2]string]bool)
	}
	for _, p := range d.Explain.Policies {
		if p.Verdict == evaluation.Satisfied {
			// A tenant's own policy never has the id of one above it, but two
			// tenants may use the same.
			r.covered[[2]string{tenant, p.ID}] = true
			r.covered[[2]string{evaluation.DefaultTenant, p.ID}] = true
		}
	}
}

// uncovered are the policies that no test satisfied.
func (r *results) uncovered() []pdp.PolicyInfo {
	var none []pdp.PolicyInfo
	if !r.coverage {
		return none
	}
	for _, p := range r.bundle.Policies() {
		if !r.covered[[2]string{p.Tenant, p.ID}] {
			none = append(none, p)
		}
	}
	return none
}
