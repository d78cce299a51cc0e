package engine

import (
	"iter"
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go/types"

	"policy-service/evaluation"
	"policy-service/pdp/internal/bundle"
)

// Names are looked for only if the decision is explained: nobody else would read them, and a name can cost more than
// the decision. What is suggested stands in the bundle, as far as the tenant of the request sees it.
const (
	maxNearest = 100 // searches for names, of one call
	maxStored  = 500 // ids to either side, of one store
	maxTypes   = 4   // names of types in a list
)

// near suggests a name in the place of another.
func (m *mismatches) near(name string, among iter.Seq[string]) string {
	if !m.looks() {
		return ""
	}
	return bundle.DidYouMean(name, among)
}

// looks reports whether one more name is looked for, and counts it.
func (m *mismatches) looks() bool {
	if !m.in.Explain || m.in.keeps.looked >= maxNearest {
		return false
	}
	m.in.keeps.looked++
	return true
}

// nearAction suggests an action that a request can name.
func (m *mismatches) nearAction(name string) string {
	return m.near(name, func(yield func(string) bool) {
		for _, id := range m.v.Actions {
			a := m.b.Schema.Actions[types.EntityUID{Type: m.b.Config.ActionType, ID: types.String(id)}]
			if a != nil && len(a.Principals) > 0 && !yield(id) {
				return
			}
		}
	})
}

// nearType suggests a type for a name that is no type's. A request may have the name that policies use.
func (m *mismatches) nearType(wire string) string {
	for name, typ := range m.b.Config.Types {
		if string(typ) == wire {
			return "; did you mean " + bundle.Quote(name) + "?"
		}
	}
	if name, ok := m.b.Config.WireType(types.EntityType(wire)); ok && slices.Contains(m.b.TypeNames, name) {
		return "; did you mean " + bundle.Quote(name) + "?"
	}
	return m.near(wire, slices.Values(m.b.TypeNames))
}

// nearStored suggests the id of a stored entity. The view's stores are the tenant's own and that of the root. Of many
// ids, only those that are next to this one in order are compared. A short id is near many that nobody means.
func (m *mismatches) nearStored(uid types.EntityUID) string {
	id := string(uid.ID)
	return m.near(id, func(yield func(string) bool) {
		for s := m.v.Store; s != nil; s = s.Root {
			ids := s.Ids[uid.Type]
			n, _ := slices.BinarySearch(ids, id)
			for _, other := range ids[max(0, n-maxStored):min(len(ids), n+maxStored)] {
				if (len(id) > 3 || strings.EqualFold(id, other)) && !yield(other) {
					return
				}
			}
		}
	})
}

// sentFor finds what was sent in the place of a required member: under a name that is near, and that is not declared.
func (m *mismatches) sentFor(name string, sent evaluation.Object, declared map[string]bundle.AttributeShape) string {
	if !m.looks() {
		return ""
	}
	near, ok := bundle.Nearest(name, func(yield func(string) bool) {
		for other := range sent.Members {
			if _, is := declared[other]; !is && !yield(other) {
				return
			}
		}
	})
	if !ok {
		return ""
	}
	return "; " + quoteShortened(near) + " was sent, which the schema does not declare: did you mean " + bundle.Quote(name) + "?"
}

// wireNames lists types, as requests name them.
func (m *mismatches) wireNames(all []types.EntityType) string {
	var names []string
	for _, typ := range all[:min(len(all), maxTypes)] {
		name, ok := m.b.Config.WireType(typ)
		if !ok {
			name = string(typ)
		}
		names = append(names, bundle.Quote(name))
	}
	if len(all) > maxTypes {
		names = append(names, "…")
	}
	return strings.Join(names, ", ")
}
