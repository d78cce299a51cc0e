package lsp

import (
	"maps"
	"slices"
	"strings"

	"policy-service/pdp"
)

// members are the attributes of each owner that was asked for: of a type, the context of an action, or a record in one.
type members struct {
	o  *pdp.Outline // nil if no file is known
	of map[string][]pdp.Attribute
}

// anyType owns the attributes of all types.
const anyType = "*"

// contextOf is the owner of the context of an action, or of all contexts if it is "".
func contextOf(action string) string { return "action " + action + "\ncontext" }

// ownerOf is the owner of the attributes of a variable; "" if that may be any.
func ownerOf(s scope, variable string) string {
	if variable == "context" && s.action != "" {
		return contextOf(s.action)
	}
	return map[string]string{"principal": s.principal, "resource": s.resource}[variable]
}

// all are the attributes of an owner.
func (m members) all(of string) []pdp.Attribute {
	all, known := m.of[of]
	if known || m.o == nil {
		return all
	}
	if action, is := strings.CutPrefix(of, "action "); is {
		all = m.o.Context(strings.TrimSuffix(action, "\ncontext"))
	} else if of != anyType {
		all = m.o.Attributes(of)
	} else {
		byName := map[string]pdp.Attribute{}
		for _, typ := range m.o.Types() {
			for _, a := range m.o.Attributes(typ) {
				byName[a.Name] = a
			}
		}
		for _, name := range slices.Sorted(maps.Keys(byName)) {
			all = append(all, byName[name])
		}
	}
	m.of[of] = all
	return all
}

// below is the owner of the attributes to which names lead from one; "" if that may be any.
func (m members) below(of string, names []string) string {
	for _, step := range names {
		all := m.all(of)
		n := slices.IndexFunc(all, func(a pdp.Attribute) bool { return a.Name == step })
		if n < 0 {
			return ""
		}
		if len(all[n].Members) == 0 { // a reference to an entity, if to anything
			of = all[n].Type
			continue
		}
		of += "\n" + step
		m.of[of] = all[n].Members
	}
	return of
}
