package obligations

import (
	"fmt"
	"slices"
	"strings"

	"policy-service/evaluation"
)

// A string in the properties of a definition may hold ${principal.id},
// ${resource.id}, ${action.name} and ${context.NAME}, or ${context.NAME.NAME}
// for a value below a member. There is no way to write a literal ${, and no other
// ${…} has a meaning: it is refused at load, so that one can be given to it later.
// A name with a dot in it cannot be reached.

// Masked is filled in where masks hide the value of a variable.
const Masked = "…"

// Variables returns the names between ${ and } in a text. It fails for one that
// does not end, has no meaning, or leads to a secret below a member.
func Variables(text string) (names []string, err error) {
	_, ok := fill(text, func(name string) (string, bool) {
		names = append(names, name)
		// The first release had ${context.NAME} for any name, so that stays legal for a secret.
		if path, _ := Path(name); !meaningful(name) {
			// Quoted, because the text of a file must not begin a line of a log.
			err = fmt.Errorf("%q has no meaning", "${"+name+"}")
		} else if len(path) > 1 && Secret(path) {
			err = fmt.Errorf("%q is masked for its name, and no text shows it", "${"+name+"}")
		}
		return "", err == nil
	})
	if !ok && err == nil {
		err = fmt.Errorf("a ${ has no }")
	}
	if err != nil {
		return nil, err
	}
	return names, nil
}

func meaningful(name string) bool {
	switch name {
	case "principal.id", "resource.id", "action.name":
		return true
	}
	path, ok := Path(name)
	return ok && path[0] != "pdp" && path[0] != "action" && !evaluation.Protocol(path[0]) &&
		!slices.ContainsFunc(path, func(name string) bool { return name == "" || strings.ContainsAny(name, "${[") })
}

// Path returns the names that lead from the context to the value of a variable. It
// reports false if the variable is not of the context.
func Path(variable string) (names []string, ok bool) {
	path, ok := strings.CutPrefix(variable, "context.")
	if !ok {
		return nil, false
	}
	return strings.Split(path, "."), true
}

// Secret reports whether one of the names on a path says that it is of a secret.
func Secret(path []string) bool { return slices.ContainsFunc(path, evaluation.SecretName) }

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
		b.WriteString(v) // its value is text, never another template
		text = after
	}
}
