package evaluation

import (
	"slices"
	"strconv"
)

// This file alone knows how answers carry obligations by Obligations Core and its Standard Types, as of 6 October 2026
// (openid/authzen at 8491bc0d).

// Adopts reports whether a PEP that sends this context adopts October's draft.
func Adopts(context Object) bool {
	extensions, _ := context.Get(ExtensionsMember)
	for _, v := range extensions.Elements {
		if v.Kind() == String && v.Text() == "obligations" {
			return true
		}
	}
	return false
}

// Declarations returns the members of a context that say what the PEP can discharge, if it is one of October's draft.
func Declarations(context Object) Object {
	if !has(context, ExtensionsMember) {
		return Object{}
	}
	return context.Without(func(name string) bool { return name != ExtensionsMember && name != SupportedMember })
}

// Type returns the name that a draft has for a type of obligation. October's has few names, and custom for all others.
func (d Draft) Type(typ string) string {
	if d != October || slices.Contains([]string{"notification", "session_termination", "step-up"}, typ) {
		return typ
	}
	return "custom"
}

// inOctober returns an obligation as October's draft writes it.
func inOctober(o Obligation) Obligation {
	switch typ := October.Type(o.Type); {
	case typ != o.Type:
		o.Properties = Object{[]Member{
			{"properties", o.Properties.Value()},
			{"type", Value{kind: String, text: o.Type}},
			{"vendor", Value{kind: String, text: "policy-service"}},
		}}
		o.Type = typ
	case typ == "notification":
		to, _ := o.Properties.Get("to")
		all, known := []Value{to}, map[string]bool{}
		if to.Kind() == Array {
			all = all[:0]
			for _, v := range to.Elements { // two templates can be filled with the same
				if !known[v.Text()] {
					all, known[v.Text()] = append(all, v), true
				}
			}
		}
		o.Properties = o.Properties.With("to", List(all...))
	}
	return o
}

// nameObligations gives each obligation of a search its own id: obligations of one name differ if their properties do. No name
// of a definition contains a tilde.
func nameObligations(found []Found) []Found {
	ids, alike := map[string]string{}, map[string]int{}
	found = slices.Clone(found)
	for n := range found {
		all := slices.Clone(found[n].Obligations)
		for i, o := range all {
			text := string(appendObligation(nil, o))
			id, known := ids[text]
			if !known {
				if alike[o.ID]++; alike[o.ID] > 1 {
					o.ID += "~" + strconv.Itoa(alike[o.ID])
				}
				id = o.ID
				ids[text] = id
			}
			all[i].ID = id
		}
		found[n].Obligations = all
	}
	return found
}
