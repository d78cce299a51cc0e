package lint

import (
	"slices"

	"policy-service/pdp/internal/bundle"
)

// permitsEverything reports whether a permit applies to every request.
func permitsEverything(p *bundle.Policy) bool {
	sometimes := func(t *bundle.Term) bool { return fold(t) != mayBeTrue }
	return !p.Forbids() && len(p.Facts.Scope) == 0 && !slices.ContainsFunc(p.Terms(), sometimes)
}

// trivial warns of a permit of a view that applies to every request: if nothing is forbidden there, and if something is.
// The bundle does not load with one that has no conditions at all, in a view where nothing is forbidden.
func (l *linter) trivial(v *bundle.View) {
	if l.b.Config.AllowTrivial {
		return
	}
	forbids := slices.ContainsFunc(v.Policies, func(p *bundle.Policy) bool {
		return p.Forbids() && !slices.ContainsFunc(p.Terms(), neverTrue)
	})
	for _, p := range v.Policies {
		if p.Tenant != v.Tenant || !permitsEverything(p) {
			continue
		}
		const try = "name in its scope what it is for, or set allow_trivial: true in bundle.yaml"
		if forbids {
			l.warn(p, "permit_everything", "permits everybody everything that no forbid forbids, also what nobody has thought of yet", try)
		} else {
			l.warn(p, "trivial_permit",
				"permits everything to everybody in tenant "+bundle.Quote(v.Tenant)+
					", because its conditions are true of every request, and nothing forbids anything there",
				try,
			)
		}
	}
}

// never warns of a policy with a condition that is false of every request.
func (l *linter) never(p *bundle.Policy) {
	if slices.ContainsFunc(p.Terms(), neverTrue) {
		l.warn(p, "never_applies", "never applies, because its conditions hold in no request",
			"correct them, or take the policy out")
	}
}
