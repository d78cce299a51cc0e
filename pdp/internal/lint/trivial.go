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

// useless warns of the policies of a view that decide nothing: a policy that applies to no request, because a condition
// is false of each or because its tests contradict each other, and a permit that applies only where a forbid without
// conditions does.
func (l *linter) useless(v *bundle.View) {
	o := overlap{l: l, v: v, bits: map[settingKey]int{}, up: map[string]bundle.Lineage{}}
	var forbids []*scoped
	for _, p := range v.Policies {
		if p.Forbids() && len(p.Facts.Conjuncts) == 0 {
			forbids = append(forbids, o.scoped(p))
		}
	}
	for _, p := range v.Policies {
		if p.Tenant != v.Tenant || p.Access != "" || tooLong(p) {
			continue
		}
		const correct = "correct it, or take the policy out"
		s, sets := o.scoped(p), l.settings(p)
		switch over := slices.IndexFunc(forbids, func(f *scoped) bool { return o.follows(s, sets, f) }); {
		case slices.ContainsFunc(p.Terms(), neverTrue):
			l.warn(p, "never_applies", "never applies, because its conditions hold in no request", correct)
		case o.apart(s, s) && (l.b.Schema == nil || len(sets) > 0) && (s.actions == nil || len(s.actions) > 0): // else other warnings say it
			l.warn(p, "never_applies", "never applies, because it demands what it rules out", correct)
		case !p.Forbids() && over >= 0:
			f := forbids[over].policy
			l.warn(p, "always_forbidden", "permits nothing, because "+bundle.Quote(f.Id)+" at "+f.Position+" forbids all of it, whatever else is true", correct)
		}
	}
}
