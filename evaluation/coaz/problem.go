package coaz

import (
	"slices"
	"strings"

	"policy-service/evaluation"
)

// Problem is something that a mapping may legally say and that its author probably does not mean.
type Problem struct {
	Pointer    string // into the mapping; of [Binding.Lint], into the tool's definition
	Expression string // what stands there, if it is an expression
	Offset     int    // the byte in it, 0 if none is meant
	Detail     string
	// Undeclared is set if an argument is read that the tool does not have.
	Undeclared bool
}

// Undeclared is the first member along a path that an inputSchema, or an outputSchema, does not declare. It is "" if all are
// declared, or the schema does not say.
func Undeclared(schema evaluation.Object, path []string) string {
	d := descent{schema: schema, optional: true}
	for _, name := range path {
		if d.enter(step{name: name}, false); d.undeclared {
			return name
		}
		if d.unknown {
			break
		}
	}
	return ""
}

// Lint says all that is wrong or doubtful about the mappings of a tool's definition: what [Binding.Parse] refuses, what
// it passes over, and the [Mapping.Problems] of what it takes. The order is always the same.
func (b *Binding) Lint(tool evaluation.Object) (problems []Problem) {
	schema, _ := tool.Get(schemaMember)
	mark, marked := tool.Get(markMember)
	_, older := schema.Object().Lookup(sepMember)
	if marked && !mark.True() {
		problems = append(problems, Problem{Pointer: "/" + markMember, Detail: "it has another value than true, and so counts for nothing"})
	}
	if older && !mark.True() {
		problems = append(problems, Problem{Pointer: inSchema(SEP), Detail: "the tool does not say coaz: true, and so this mapping counts for nothing"})
	}
	problems = append(problems, misplaced(tool, schema.Object())...)
	m, err := b.Parse(tool)
	if err != nil {
		wrong := err.(*Error)
		return append(problems, Problem{Pointer: inSchema(wrong.Dialect) + wrong.Pointer, Expression: wrong.Expression, Offset: wrong.Offset, Detail: wrong.Detail})
	}
	if m == nil {
		return problems
	}
	for _, e := range m.envelopes {
		for _, p := range m.problems(e, schema.Object()) {
			p.Pointer = inSchema(e.dialect) + p.Pointer
			problems = append(problems, p)
		}
	}
	return problems
}

// misplaced tells of members that look as if they declared a mapping, and that nobody reads: the default is asked then.
func misplaced(tool, schema evaluation.Object) (problems []Problem) {
	look := func(at string, o evaluation.Object, read ...string) {
		for name := range o.All {
			like := func(s string) bool { return strings.EqualFold(s, name) }
			if !slices.Contains(read, name) && slices.ContainsFunc([]string{authzenMember, sepMember, markMember}, like) {
				problems = append(problems, Problem{Pointer: at + escaped(name),
					Detail: "it counts for nothing here, or so written: " + authzenMember + " and " + sepMember + " stand in the " + schemaMember + ", and " + markMember + " beside it"})
			}
		}
	}
	look("", tool, markMember)
	look("/"+schemaMember, schema, authzenMember, sepMember)
	return problems
}

func inSchema(d Dialect) string {
	if d == SEP {
		return "/" + schemaMember + "/" + sepMember
	}
	return "/" + schemaMember + "/" + authzenMember
}

// Problems holds the mapping against the inputSchema of the tool that it is for: arguments that are not declared, or
// that may be missing where the mapping needs them, ids that cannot be strings, a question that is always the same, a
// context without the agent, and a subject that is not the token's. The order is always the same.
func (m *Mapping) Problems(inputSchema evaluation.Object) (problems []Problem) {
	for _, e := range m.envelopes {
		problems = append(problems, m.problems(e, inputSchema)...)
	}
	return problems
}

func (m *Mapping) problems(e *envelope, schema evaluation.Object) (problems []Problem) {
	for _, l := range e.leaves {
		for _, read := range l.reads {
			if detail, undeclared := m.doubt(l, read, schema); detail != "" {
				problems = append(problems, Problem{l.at, l.text, read.offset, detail, undeclared})
			}
		}
	}
	if m.author == standard {
		return problems
	}
	readsRequest := func(s selection) bool { return s.root == "params" && !s.is("params", "name") }
	if !slices.ContainsFunc(e.leaves, func(l leaf) bool { return slices.ContainsFunc(l.reads, readsRequest) }) {
		problems = append(problems, Problem{Pointer: e.at, Detail: "nothing of a call is in the question: the PDP is asked the same whatever the arguments are"})
	}
	if m.author == declared {
		problems = append(problems, e.unanchored()...)
	}
	return append(problems, e.withoutAgent()...)
}

// unanchored tells of a subject that is not the one of the token.
func (e *envelope) unanchored() []Problem {
	at := e.at + "/subject"
	subject, ok := e.shared.subject.(object)
	if ok {
		for _, m := range subject {
			if _, anchored := m.node.(claimNode); m.name == "id" && anchored {
				return nil
			}
		}
		at += "/id"
	}
	p := Problem{Pointer: at, Detail: "the subject is not set to the claim that the token names it by: a call where it is another is refused, or warned of"}
	for _, l := range e.leaves {
		if l.at == at {
			p.Expression = l.text
		}
	}
	return []Problem{p}
}

// withoutAgent tells of contexts that do not say who acts.
func (e *envelope) withoutAgent() (problems []Problem) {
	check := func(t template) {
		context, ok := t.context.(object)
		if ok && !has(context, "agent") || t.context == nil {
			problems = append(problems, Problem{Pointer: t.at + "/context", Detail: "the context does not say which agent acts, which it must where agents act by themselves"})
		}
	}
	if len(e.entries) == 0 {
		check(e.shared)
	}
	for _, t := range e.entries {
		if t.context == nil {
			t = template{at: e.at, context: e.shared.context}
		}
		check(t)
	}
	return slices.Compact(problems)
}

// paramsOfCall are the members that the params of tools/call may have.
var paramsOfCall = []string{"_meta", "arguments", "name", "task", "inputResponses", "requestState"}

// doubt says what is doubtful about something that an expression reads; "" is nothing. Undeclared is set if there is
// no such argument.
func (m *Mapping) doubt(l leaf, read selection, schema evaluation.Object) (detail string, undeclared bool) {
	if read.root != "params" || len(read.steps) == 0 || m.author == standard {
		return "", false
	}
	if first := read.steps[0].name; first != "arguments" {
		if m.author == declared && !slices.Contains(paramsOfCall, first) {
			return "a call of a tool has no " + first, false
		}
		return "", false
	}
	d := descent{schema: schema, optional: read.steps[0].optional || m.dialect == SEP}
	for n, s := range read.steps[1:] {
		if detail := d.enter(s, l.hasTested(read.steps[:n+2])); detail != "" {
			return detail, d.undeclared
		}
		if d.unknown {
			return "", false
		}
	}
	if !read.alone || l.want != stringResult {
		return "", false
	}
	if d.absent {
		return "it may be missing, and a type, an id or a name must not be", false
	}
	if len(read.steps) > 1 && !mayBe("string", d.schema) {
		return "by the inputSchema it is never a string, which a type, an id or a name must be", false
	}
	return "", false
}

// hasTested reports whether the expression asks by has() whether a member is there.
func (l leaf) hasTested(steps []step) bool {
	return slices.ContainsFunc(l.tested, func(s selection) bool {
		return s.root == "params" && slices.EqualFunc(s.steps, steps, func(a, b step) bool {
			return a.name == b.name && a.index == b.index && a.isIndex == b.isIndex
		})
	})
}

// descent goes down an inputSchema along a selection.
type descent struct {
	schema   evaluation.Object
	optional bool // what is missing is absent, and no error
	absent   bool // what is read may be missing
	unknown  bool // the schema does not say more
	// undeclared is that the schema says that there is no such member.
	undeclared bool
}

// enter goes one step down, and says what is wrong with it.
func (d *descent) enter(s step, tested bool) string {
	d.optional = d.optional || s.optional
	properties, given := d.schema.Get("properties")
	if s.isIndex || !given || slices.ContainsFunc(combining, func(name string) bool { _, ok := d.schema.Get(name); return ok }) {
		d.unknown = true
		return ""
	}
	declared, ok := properties.Object().Get(s.name)
	if !ok {
		if d.open() {
			d.unknown = true
			return ""
		}
		d.undeclared = true
		return "the inputSchema declares no " + s.name
	}
	required, _ := d.schema.Get("required")
	must := false
	for _, name := range required.Elements {
		must = must || name.Kind() == evaluation.String && name.Text() == s.name
	}
	d.schema = declared.Object()
	if must {
		return ""
	}
	d.absent = true
	if !d.optional && !tested {
		return "by the inputSchema " + s.name + " may be missing, and then the mapping fails: read it with .? or after has()"
	}
	return ""
}

// combining are the members of a schema that say more about its properties than properties does.
var combining = strings.Fields("$ref $dynamicRef allOf anyOf oneOf if patternProperties")

// open reports whether the schema describes members that it does not name.
func (d *descent) open() bool {
	more, ok := d.schema.Get("additionalProperties")
	return ok && (more.Kind() == evaluation.Map || more.True())
}

// mayBe reports whether a schema leaves it possible that a value has a type.
func mayBe(name string, schema evaluation.Object) bool {
	v, ok := schema.Get("type")
	if !ok {
		return true
	}
	if v.Kind() == evaluation.String {
		return v.Text() == name
	}
	for _, one := range v.Elements {
		if one.Text() == name {
			return true
		}
	}
	return v.Kind() != evaluation.Array
}
