package auth

import (
	"cmp"
	"slices"
)

// Approvers are those who may approve in a tenant, as far as that is known without asking them: the holders of API keys
// in force, by the names of the keys, and the types of the entities that these and the holders of tokens are to policies.
func (a *Authenticator) Approvers(tenant string) (keys []Caller, types []string) {
	if a.Keys != nil {
		keys = a.Keys.approvers(tenant)
	}
	for _, k := range keys {
		types = append(types, k.Principal.Type)
	}
	for _, j := range a.tokens() {
		for _, i := range j.issuers {
			if i.Principal != nil && i.lets(tenant, Approve) {
				types = append(types, i.Principal.Type)
			}
		}
	}
	slices.Sort(types)
	return keys, slices.Compact(types)
}

// tokens are those who know the holders of tokens.
func (a *Authenticator) tokens() (all []*JWT) {
	if a.JWT != nil {
		all = append(all, a.JWT)
	}
	if a.Console != nil {
		all = append(all, a.Console.tokens)
	}
	return all
}

// approvers are the holders of keys that may approve in a tenant, by their names. While nobody knows which keys are in
// force, there are none.
func (k *Keys) approvers(tenant string) (all []Caller) {
	view := k.current()
	if view.err != nil {
		return nil
	}
	for _, s := range view.stored {
		if found := view.byID[s.ID]; !found.refused && !s.Ended(k.now()) && s.lets(tenant, Approve) && s.Principal != (Principal{}) {
			all = append(all, found.caller)
		}
	}
	slices.SortFunc(all, func(a, b Caller) int { return cmp.Compare(a.Name, b.Name) })
	return slices.CompactFunc(all, func(a, b Caller) bool { return a.Name == b.Name }) // one that is renewed has two secrets
}
