package auth

import "slices"

// Approvers are those who may approve in a tenant, as far as that is known without asking them: the holders of API keys
// in force, by the names of the keys, and the types of the entities that these and the holders of tokens are to policies.
func (a *Authenticator) Approvers(tenant string) (keys []Caller, types []string) {
	if a.Keys != nil {
		keys = a.Keys.Approvers(tenant)
	}
	for _, k := range keys {
		types = append(types, k.Principal.Type)
	}
	for _, j := range a.tokens() {
		for _, i := range j.issuers {
			if i.Principal != nil && i.Lets(tenant, Approve) {
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
