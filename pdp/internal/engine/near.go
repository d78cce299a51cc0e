package engine

import (
	"iter"
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go/types"

	"policy-service/evaluation"
	"policy-service/pdp/internal/bundle"
)

// Names are looked for only if the decision is explained: otherwise they are not shown, and a name can cost more than
// the decision. Suggestions stand in the bundle, as far as the tenant of the request sees it.
const (
	maxNearest = 100 // searches for names, of one call
	maxStored  = 500 // ids to either side, of one store
	maxTypes   = 4   // names of types in a list
)

// near suggests a name in the place of another.
func (d describer) near(name string, among iter.Seq[string]) string {
	if !d.looks() {
		return ""
	}
	return bundle.DidYouMean(name, among).String()
}

// looks reports whether one more name is looked for, and counts it.
func (d describer) looks() bool {
	if !d.in.Explain || d.in.keeps.looked >= maxNearest {
		return false
	}
	d.in.keeps.looked++
	return true
}

// nearAction suggests an action that a request can name.
func (d describer) nearAction(name string) string {
	return d.near(name, func(yield func(string) bool) {
		for _, id := range d.v.Actions {
			a := d.in.Bundle.Schema.Actions[types.EntityUID{Type: d.in.Bundle.Config.ActionType, ID: types.String(id)}]
			if a != nil && len(a.Principals) > 0 && !yield(id) {
				return
			}
		}
	})
}

// nearType suggests a type for a name that is no type's. A request may have the name that policies use.
func (d describer) nearType(wire string) string {
	for name, typ := range d.in.Bundle.Config.Types {
		if string(typ) == wire {
			return "; did you mean " + bundle.Quote(name) + "?"
		}
	}
	if name, ok := d.in.Bundle.Config.WireType(types.EntityType(wire)); ok && slices.Contains(d.in.Bundle.TypeNames, name) {
		return "; did you mean " + bundle.Quote(name) + "?"
	}
	return d.near(wire, slices.Values(d.in.Bundle.TypeNames))
}

// nearStored suggests the id of a stored entity. The view's stores are the tenant's own and that of the root. Of many
// ids, only those that are next to this one in order are compared. A short id is near many others.
func (d describer) nearStored(uid types.EntityUID) string {
	id := string(uid.ID)
	return d.near(id, func(yield func(string) bool) {
		for s := d.v.Store; s != nil; s = s.Root {
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

// sentFor finds a member that was sent in the place of a required one: its name is near, and is not declared.
func (d describer) sentFor(name string, sent evaluation.Object, declared map[string]bundle.AttributeShape) string {
	if !d.looks() {
		return ""
	}
	near, ok := bundle.Nearest(name, func(yield func(string) bool) {
		for other := range sent.Members {
			if _, is := declared[other]; !is && !evaluation.Protocol(other) && !yield(other) {
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
func (d describer) wireNames(all []types.EntityType) string {
	var names []string
	for _, typ := range all[:min(len(all), maxTypes)] {
		name, ok := d.in.Bundle.Config.WireType(typ)
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
