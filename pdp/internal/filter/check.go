package filter

import (
	"github.com/cedar-policy/cedar-go/types"

	"policy-service/pdp/internal/bundle"
)

// Untranslatable is a policy that keeps filters from being made.
type Untranslatable struct {
	*Refusal
	Policy  *bundle.Policy
	Type    string   // of the rows, as requests name it
	Actions []string // of which no filter is made for it
	Reads   bundle.AttributePath
}

// Check returns the policies about mapped types and their listed actions that no filter can be made of, whoever asks. Of a policy of
// which one is made for some subjects alone, it reports nothing if the part that is known decides that.
func Check(b *bundle.Bundle) (all []Untranslatable) {
	for _, m := range bundle.ByName(b.Mappings) {
		for _, v := range bundle.ByName(b.Views) {
			found := map[*bundle.Policy]int{}
			for _, name := range m.Actions {
				uid := types.NewEntityUID(b.Config.ActionType, types.String(name))
				t := translatorOf(b, m, Options{Dialect: Postgres})
				t.unasked, t.action = true, bundle.LineageOf(uid, v.Store)
				for _, p := range v.Policies {
					if p.Tenant != v.Tenant {
						continue
					}
					t.terms = 0 // which bounds one filter
					is := t.policyTruth(p)
					needs := is.is
					if p.Forbids() || len(owed(p)) > 0 {
						needs = t.fails(is)
					}
					if needs.kind != refused {
						continue
					}
					if n, known := found[p]; known {
						all[n].Actions = append(all[n].Actions, name)
						continue
					}
					found[p] = len(all)
					all = append(all, Untranslatable{needs.refused, p, m.Wire, []string{name}, needs.refused.reads})
				}
			}
		}
	}
	return all
}
