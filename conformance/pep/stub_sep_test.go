package pep

import (
	"regexp"
	"strconv"
	"strings"
)

// old is a mapping of the dialect of February 2026.
func (s *stub) old(tool string, mapping any) (template, error) {
	o, ok := mapping.(object)
	if !ok {
		return template{}, mappingError("no mapping")
	}
	for _, name := range []string{"subject", "resource", "context"} {
		if o[name] == nil {
			return template{}, mappingError("no %s", name)
		}
	}
	if !s.wrong["takes mappings without the token"] && !strings.Contains(show(o["subject"])+show(o["context"]), "$.token") {
		return template{}, mappingError("nothing of the token")
	}
	if o["action"] == nil {
		o = with(o, object{"action": object{"name": tool}})
	}
	return template{envelope: "evaluation", body: o, sep: true}, nil
}

var singular = regexp.MustCompile(`^(\.[A-Za-z_][A-Za-z0-9_]*|\['[^']*'\]|\[[0-9]+\])`)

// path finds the one value of a path, whose first name is properties or token.
func (e *evaluator) path(text string) (any, error) {
	var at any = object{"properties": member(e.params, "arguments"), "token": e.claims}
	rest := strings.TrimPrefix(text, "$")
	for rest != "" {
		step := singular.FindString(rest)
		if step == "" {
			if e.stub.wrong["takes the first of several values"] && strings.HasPrefix(rest, "[*]") {
				return "item-1", nil
			}
			return nil, mappingError("no singular path")
		}
		rest = rest[len(step):]
		name := strings.Trim(step, ".[]'")
		if list, ok := at.([]any); ok {
			n, err := strconv.Atoi(name)
			if err != nil || n >= len(list) {
				return nil, errAbsent
			}
			at = list[n]
			continue
		}
		o, _ := at.(object)
		inner, there := o[name]
		if !there {
			return nil, errAbsent
		}
		at = inner
	}
	return at, nil
}
