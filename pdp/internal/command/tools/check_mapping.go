package tools

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"policy-service/evaluation"
	"policy-service/evaluation/coaz"
	"policy-service/pdp/internal/mcp"
	"policy-service/pdp/internal/server/config"
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
	for _, d := range ofAll(m, about) {
		message := path + d.pointer + ": " + d.detail
		if d.undeclared {
			in.refuse(in.atKey(path, d.pointer), message, "correct the name; without the argument the mapping fails, or asks the same whatever is called")
		} else {
			in.warn(in.atKey(path, d.pointer), message, "mend the mapping")
		}
	}
}

// declared checks the mapping that a tool declares. Left is why the gateway leaves the tool out, nil if it does not.
func (in *input) declared(t *tool, left error) {
	binding, err := in.config.Binding()
	if err != nil || in.config.Declared == mcp.DeclaredIgnore {
		return
	}
	const of, try = "the mapping that the tool declares: ", toAuthor + ", or set declared: ignore"
	if wrong := (*coaz.Error)(nil); errors.As(left, &wrong) {
		in.refuse(in.atTool(t, members[wrong.Dialect]+wrong.Pointer), of+expression(wrong.Expression)+wrong.Detail+", so the tool is neither listed nor callable", try)
	}
	m, err := binding.Parse(t.definition)
	if m == nil || err != nil { // that of another dialect than those that are read is no matter
		return
	}
	for _, d := range doubts(m, t.input) {
		if !in.reads(d.dialect) {
			continue
		}
		report := in.warn
		if d.undeclared {
			report = in.refuse
		}
		report(in.atTool(t, members[d.dialect]+d.pointer), of+d.detail, try)
	}
}

// members are the places of mappings in a definition.
var members = map[coaz.Dialect]string{coaz.AuthZEN: "/inputSchema/x-authzen-mapping", coaz.SEP: "/inputSchema/x-coaz-mapping"}

// reads reports whether the gateway reads mappings of a dialect.
func (in *input) reads(d coaz.Dialect) bool {
	return in.config.Dialects == nil || slices.Contains(in.config.Dialects, d.String())
}

// doubt is a part of a mapping that its author probably does not mean.
type doubt struct {
	dialect         coaz.Dialect
	pointer, detail string
	undeclared      bool // it reads an argument that the tool does not have
}

// ofAll are the doubts about a mapping that hold for each of several tools.
func ofAll(m *coaz.Mapping, of []*tool) []doubt {
	all := doubts(m, of[0].input)
	for _, t := range of[1:] {
		more := doubts(m, t.input)
		all = slices.DeleteFunc(all, func(d doubt) bool { return !slices.Contains(more, d) })
	}
	return all
}

// paramsOfCall are the members that the params of tools/call may have.
var paramsOfCall = []string{"_meta", "arguments", "name", "task", "inputResponses", "requestState"}

// doubts holds a mapping against the inputSchema of a tool.
func doubts(m *coaz.Mapping, schema evaluation.Object) (all []doubt) {
	onlyName := true // all that is read of the params is the tool's name
	for _, r := range m.Reads() {
		if r.Root != "params" {
			continue
		}
		onlyName = onlyName && slices.Equal(r.Names, []string{"name"})
		d := doubt{dialect: r.Dialect, pointer: r.Pointer}
		if len(r.Names) == 0 {
			continue
		} else if r.Names[0] != "arguments" {
			if d.undeclared = !slices.Contains(paramsOfCall, r.Names[0]); d.undeclared {
				d.detail = "a call of a tool has no " + r.Names[0]
			}
		} else if missing, _ := along(schema, r.Names[1:]); missing != "" {
			d.detail, d.undeclared = "the inputSchema declares no "+missing, true
			// Without one of the first r.Needed names the mapping fails.
		} else if _, optional := along(schema, r.Names[1:max(r.Needed, 1)]); optional != "" {
			d.detail = "by the inputSchema " + optional + " may be missing, and then the mapping fails: require it, or read it with .? or after has() where it can be left out"
		}
		if d.detail != "" {
			d.detail = expression(r.Expression) + d.detail
			all = append(all, d)
		}
	}
	if onlyName {
		all = append(all, doubt{dialect: m.Dialect(), detail: "nothing of a call is in the question: the PDP is asked the same whatever the arguments are"})
	}
	return all
}

// along goes down a schema. Missing is the first name that the schema does not declare, and optional the first that it does
// not require; "" for none. The way ends where the schema does not say more.
func along(schema evaluation.Object, names []string) (missing, optional string) {
	for _, name := range names {
		properties, given := schema.Get("properties")
		if !given || slices.ContainsFunc(combining, func(name string) bool { _, ok := schema.Get(name); return ok }) {
			return "", optional
		}
		declared, ok := properties.Object().Get(name)
		if more, _ := schema.Get("additionalProperties"); !ok && (more.Kind() == evaluation.Map || more.True()) {
			return "", optional
		} else if !ok {
			return name, optional
		}
		if required, _ := schema.Get("required"); optional == "" && !hasText(required, name) {
			optional = name
		}
		schema = declared.Object()
	}
	return "", optional
}

// combining are the members of a schema that say more about its properties than properties does.
var combining = strings.Fields("$ref $dynamicRef allOf anyOf oneOf if patternProperties")

func hasText(list evaluation.Value, text string) bool {
	for _, v := range list.Elements {
		if v.Kind() == evaluation.String && v.Text() == text {
			return true
		}
	}
	return false
}

// undeclaredIn is the first name along a path that none of the tools declares; "" if one may have it.
func undeclaredIn(of []*tool, path []string, schema func(*tool) evaluation.Object) (missing string) {
	for _, t := range of {
		if missing, _ = along(schema(t), path); missing == "" {
			return ""
		}
	}
	return missing
}

// expression is an expression as a prefix of the problem in it.
func expression(text string) string {
	if text == "" {
		return ""
	}
	return fmt.Sprintf("%q: ", text)
}
