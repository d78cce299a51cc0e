package obligations

import (
	"cmp"
	"slices"
	"strings"

	"policy-service/evaluation"
)

// Owed is an obligation and the determining policy that names it.
type Owed struct {
	*Definition
	Policy string
}

// Resolution is the result of the obligations of all determining policies.
type Resolution struct {
	// Obligations are owed, in order of their names, each once.
	Obligations []evaluation.Obligation
	// Conflict and Unfilled are set where an obligation cannot be met: on an
	// allow either one denies.
	Conflict, Unfilled bool
	// LeftOut are the obligations that cannot be met.
	LeftOut []evaluation.LeftOut
}

// Resolve unites the obligations that the determining policies of an answer name. The value of
// a variable in a template comes from value.
func Resolve(allow bool, owed []Owed, value func(name string) (string, bool)) Resolution {
	owed = slices.DeleteFunc(owed, func(o Owed) bool { return !o.On.With(allow) })
	slices.SortStableFunc(owed, func(a, b Owed) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Policy, b.Policy))
	})
	var out Resolution
	for _, o := range owed {
		properties, ok := Fill(o.Properties, value)
		needed, _ := properties.Get(o.Type.Needs)
		empty := func(v evaluation.Value) bool { return v.Kind() == evaluation.String && v.Text() == "" }
		lacks := !ok || empty(needed)
		for _, v := range needed.Elements {
			lacks = lacks || empty(v)
		}
		if lacks {
			out.Unfilled = true
			out.leaveOut(o.Name, evaluation.ObligationUnfilled)
			continue
		}
		out.join(evaluation.Obligation{ID: o.Name, Type: o.Type.Name, Properties: properties, Policies: []string{o.Policy}, Written: o.Properties.Size()})
	}
	out.settle()
	return out
}

// Unite makes one answer's obligations of those of two that must both hold, each
// of which was resolved by itself.
func Unite(a, b []evaluation.Obligation) Resolution {
	var out Resolution
	for _, o := range slices.Concat(a, b) {
		o.Policies = slices.Clone(o.Policies) // that of a and b is theirs
		out.join(o)
	}
	slices.SortStableFunc(out.Obligations, func(a, b evaluation.Obligation) int { return strings.Compare(a.ID, b.ID) })
	out.settle()
	return out
}

// join takes an obligation in, once: by its type and what it says, whatever the
// names of those that say it.
func (out *Resolution) join(o evaluation.Obligation) {
	for n := range out.Obligations {
		if same := &out.Obligations[n]; same.Type == o.Type && same.Properties.Value().Equal(o.Properties.Value()) {
			for _, policy := range o.Policies {
				if !slices.Contains(same.Policies, policy) {
					same.Policies = append(same.Policies, policy)
				}
			}
			return
		}
	}
	out.Obligations = append(out.Obligations, o)
}

// settle takes out obligations that are there twice and can be met once.
func (out *Resolution) settle() {
	count := map[string]int{}
	for _, o := range out.Obligations {
		count[o.Type]++
	}
	out.Obligations = slices.DeleteFunc(out.Obligations, func(o evaluation.Obligation) bool {
		t, _ := Lookup(o.Type)
		if t.Combine != One || count[o.Type] < 2 {
			return false
		}
		out.Conflict = true
		out.leaveOut(o.ID, evaluation.ObligationConflict)
		return true
	})
	for _, o := range out.Obligations {
		slices.Sort(o.Policies)
	}
}

func (out *Resolution) leaveOut(id string, reason evaluation.Reason) {
	left := evaluation.LeftOut{ID: id, Reason: reason}
	if !slices.Contains(out.LeftOut, left) {
		out.LeftOut = append(out.LeftOut, left)
	}
}

// Missing are the types of obligations that are not declared, each once, in
// order.
func Missing(owed []evaluation.Obligation, declared func(string) bool) []string {
	var missing []string
	for _, o := range owed {
		if !declared(o.Type) {
			missing = append(missing, o.Type)
		}
	}
	slices.Sort(missing)
	return slices.Compact(missing)
}
