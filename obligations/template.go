package obligations

import (
	"fmt"
	"strings"

	"policy-service/evaluation"
)

// A string in the properties of a definition may hold ${principal.id},
// ${resource.id}, ${action.name} and ${context.NAME}. There is no way to write
// a literal ${, and no other ${…} has a meaning: it is refused at load, so that
// one can be given to it later.

// Variables returns the names between ${ and } in a text. It fails for one that
// does not end or has no meaning.
func Variables(text string) ([]string, error) {
	var names []string
	for {
		_, rest, ok := strings.Cut(text, "${")
		if !ok {
			return names, nil
		}
		name, after, ok := strings.Cut(rest, "}")
		if !ok {
			return nil, fmt.Errorf("a ${ has no }")
		}
		if !meaningful(name) {
			// Quoted, because what a file holds must not begin a line of a log.
			return nil, fmt.Errorf("%q has no meaning", "${"+name+"}")
		}
		names, text = append(names, name), after
	}
}

func meaningful(name string) bool {
	switch name {
	case "principal.id", "resource.id", "action.name":
		return true
	}
	member, ok := strings.CutPrefix(name, "context.")
	return ok && member != "" && member != "pdp" && member != "action" && !strings.ContainsAny(member, ".${[") && !evaluation.Protocol(member)
}

// Fill replaces every variable in the strings of an object. It fails where one
// has no value.
func Fill(o evaluation.Object, value func(name string) (string, bool)) (evaluation.Object, bool) {
	return o.MapStrings(func(text string) (string, bool) { return fill(text, value) })
}

func fill(text string, value func(string) (string, bool)) (string, bool) {
	var b strings.Builder
	for {
		before, rest, ok := strings.Cut(text, "${")
		b.WriteString(before)
		if !ok {
			return b.String(), true
		}
		name, after, ok := strings.Cut(rest, "}")
		if !ok {
			return "", false
		}
		v, ok := value(name)
		if !ok {
			return "", false
		}
		b.WriteString(v) // what it holds is text, never another template
		text = after
	}
}
