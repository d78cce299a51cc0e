package tools

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"policy-service/evaluation"
	"policy-service/evaluation/coaz"
	"policy-service/pdp/mcp"
	"policy-service/pdp/server/config"
)

const toolsCall = "tools/call"

// mappings holds the operator's mappings against the tools that they are for.
func (in *input) mappings() {
	binding, err := in.config.Binding()
	if in.locked == nil || err != nil { // the error is a mistake of the configuration
		return
	}
	for _, key := range slices.Sorted(maps.Keys(in.config.Mappings)) {
		method, id, ofTool := strings.Cut(key, " ")
		if method != toolsCall {
			continue
		}
		about := in.locked.sorted()
		if ofTool {
			server, name, _ := strings.Cut(id, ":")
			in.known(config.Entry("mappings", key), server, name)
			about = slices.DeleteFunc(about, func(t *tool) bool { return t.id != id })
		}
		if len(about) > 0 {
			in.mapping(binding, key, about)
		}
	}
}

func (in *input) mapping(binding *coaz.Binding, key string, about []*tool) {
	path := config.Entry("mappings", key)
	text, err := evaluation.ParseObject(in.config.Mappings[key], evaluation.DefaultLimits())
	if err != nil {
		return
	}
	m, err := binding.Compile(text, coaz.AuthZEN)
	if err != nil {
		return
	}
	for _, p := range ofAll(m, about) {
		message := path + p.Pointer + ": " + expression(p) + p.Detail
		if p.Undeclared {
			in.refuse(in.atKey(path, p.Pointer), message, "correct the name; without the argument the mapping fails, or asks the same whatever is called")
		} else {
			in.warn(in.atKey(path, p.Pointer), message, "mend the mapping")
		}
	}
}

// ofAll are the problems that a mapping has with each of several tools.
func ofAll(m *coaz.Mapping, of []*tool) (all []coaz.Problem) {
	for n, t := range of {
		problems := m.Problems(t.input)
		if n == 0 {
			all = problems
			continue
		}
		all = slices.DeleteFunc(all, func(p coaz.Problem) bool { return !slices.Contains(problems, p) })
	}
	return all
}

// declared looks at the mapping that a tool declares.
func (in *input) declared(t *tool) {
	binding, err := in.config.Binding()
	if err != nil || in.config.Declared == mcp.DeclaredIgnore {
		return
	}
	_, err = binding.Parse(t.definition)
	for _, p := range binding.Lint(t.definition) {
		if !in.reads(p.Pointer) {
			continue
		}
		message, try := "the mapping that the tool declares: "+expression(p)+p.Detail, toAuthor+", or set declared: ignore"
		report := in.warn
		if p.Undeclared {
			report = in.refuse
		}
		if refused := (*coaz.Error)(nil); errors.As(err, &refused) && strings.HasSuffix(p.Pointer, refused.Pointer) && p.Detail == refused.Detail {
			report, message = in.refuse, message+", so the tool is neither listed nor callable"
		}
		report(in.atTool(t, p.Pointer), message, try)
	}
}

// reads reports whether mappings are read in the dialect of a place in a definition.
func (in *input) reads(pointer string) bool {
	of := func(member, dialect string) bool {
		return strings.Contains(pointer, member) && in.config.Dialects != nil && !slices.Contains(in.config.Dialects, dialect)
	}
	return !of("x-authzen-mapping", "authzen") && !of("coaz", "sep")
}

// undeclaredIn is the first name along a path that none of the tools declares; "" if one may have it.
func undeclaredIn(of []*tool, path []string, schema func(*tool) evaluation.Object) (missing string) {
	for _, t := range of {
		if missing = coaz.Undeclared(schema(t), path); missing == "" {
			return ""
		}
	}
	return missing
}

// expression is where in an expression a problem is.
func expression(p coaz.Problem) string {
	switch {
	case p.Expression == "":
		return ""
	case p.Offset > 0:
		return fmt.Sprintf("%q at byte %d: ", p.Expression, p.Offset)
	}
	return fmt.Sprintf("%q: ", p.Expression)
}
