package coaz

import (
	"slices"
	"strings"

	"policy-service/evaluation"
)

// compiler compiles one mapping.
type compiler struct {
	binding  *Binding
	author   author
	dialect  Dialect
	language *language
	limits   Limits // of the text; evaluation is bounded by those of the binding
	tool     string // the tool that declares the mapping, for the dialect that needs its name
	envelope envelope

	inspected // of the expressions that were compiled
}

func (c *compiler) fail(at, detail string) *Error {
	return &Error{Dialect: c.dialect, Pointer: at, Detail: detail}
}

// compile makes a Mapping of an object. Nothing checks a Mapping later.
func (c *compiler) compile(mapping evaluation.Object) (*Mapping, error) {
	if mapping.Size() > c.limits.Mapping {
		return nil, c.fail("", tooMany("bytes", c.limits.Mapping))
	}
	canonical, ok := mapping.Value().AppendCanonical(nil)
	if !ok {
		return nil, c.fail("", "it holds a number that is too large to be read")
	}
	c.envelope.dialect = c.dialect
	compile := c.enveloped
	if c.dialect == SEP {
		compile = c.older
	}
	if err := compile(mapping); err != nil {
		return nil, c.envelope.describe(err)
	}
	m := &Mapping{
		binding: c.binding, author: c.author, dialect: c.dialect,
		digest:    digestOf(c.dialect.String(), c.tool, string(canonical)),
		envelopes: []*envelope{&c.envelope},
	}
	if c.author == declared {
		m.method = callMethod
	}
	return m, nil
}

const callMethod = "tools/call"

// enveloped compiles a mapping of the binding's dialect.
func (c *compiler) enveloped(mapping evaluation.Object) *Error {
	if sizeOf(mapping) != 1 {
		return c.fail("", "not exactly one member; it must be evaluation or evaluations")
	}
	for name, body := range mapping.All {
		c.envelope.api, c.envelope.at = API(name), escaped(name)
		if name != string(Evaluation) && name != string(Evaluations) {
			return c.fail(c.envelope.at, "no API that can be asked; it must be evaluation or evaluations")
		}
		if body.Kind() != evaluation.Map {
			return c.fail(c.envelope.at, notAnObject)
		}
		if name == string(Evaluation) {
			return c.single(body.Object())
		}
		return c.several(body.Object())
	}
	return nil
}

func (c *compiler) single(body evaluation.Object) *Error {
	t, err := c.template(body, c.envelope.at)
	if err != nil {
		return err
	}
	c.supply(&t)
	c.envelope.shared = t
	return c.complete(t, template{}, c.envelope.at)
}

// several compiles the envelope evaluations. How many decisions are asked for is written there, and nothing that an
// expression yields can change it.
func (c *compiler) several(body evaluation.Object) *Error {
	at := c.envelope.at
	const list = "evaluations"
	shared, err := c.template(body.Without(func(name string) bool { return name == list }), at)
	if err != nil {
		return err
	}
	c.supply(&shared)
	c.envelope.shared = shared
	entries, _ := body.Get(list)
	if entries.Kind() != evaluation.Array || entries.Len() == 0 {
		return c.fail(at+escaped(list), "not an array with at least one entry: without entries nothing would be asked")
	}
	if entries.Len() > c.limits.Entries {
		return c.fail(at+escaped(list), tooMany("entries", c.limits.Entries))
	}
	for n, entry := range entries.Elements {
		place := at + escaped(list) + indexed(n)
		if entry.Kind() != evaluation.Map {
			return c.fail(place, notAnObject)
		}
		t, err := c.entry(entry.Object(), place)
		if err != nil {
			return err
		}
		if err := c.complete(t, shared, place); err != nil {
			return err
		}
		c.envelope.entries = append(c.envelope.entries, t)
	}
	return nil
}

func (c *compiler) entry(entry evaluation.Object, at string) (template, *Error) {
	if _, has := entry.Lookup("subject"); has && c.author != operator {
		return template{}, c.fail(at+"/subject", "an entry must not have a subject: the one beside the entries is everybody's")
	}
	return c.template(entry, at)
}

// complete refuses a request in which something is missing that every request has, as far as no expression may yield it.
func (c *compiler) complete(t, shared template, at string) *Error {
	for n, p := range t.parts() {
		inherited := shared.parts()[n].node
		if p.name == "context" {
			continue
		}
		if p.node == nil && inherited == nil {
			return c.fail(at+escaped(p.name), "missing; it must be an object")
		}
		for _, name := range namesOf(p.name) {
			if !has(p.node, name) && !has(inherited, name) {
				return c.fail(at+escaped(p.name)+escaped(name), noName)
			}
		}
	}
	return nil
}

// has reports whether an entity has a member, or may have: an expression says only when it is evaluated.
func has(entity node, name string) bool {
	o, ok := entity.(object)
	if !ok {
		return entity != nil
	}
	return slices.ContainsFunc(o, func(m member) bool { return m.name == name })
}

// namesOf are the members that a part of a request must have.
func namesOf(part string) []string {
	if part == "action" {
		return []string{"name"}
	}
	return []string{"type", "id"}
}

// older compiles a mapping of the older dialect, which is one request without envelope.
func (c *compiler) older(mapping evaluation.Object) *Error {
	c.envelope.api = Evaluation
	t, err := c.template(mapping, "")
	if err != nil {
		return err
	}
	if t.action == nil {
		t.action = object{{"name", toolName{c.tool}}}
	}
	if t.context == nil {
		return c.fail("/context", "missing; it must be an object")
	}
	fromToken := func(l leaf) bool {
		place, _, _ := strings.Cut(l.at[1:], "/")
		return (place == "subject" || place == "context") && slices.ContainsFunc(l.reads, func(s selection) bool { return s.root == "token" })
	}
	if !slices.ContainsFunc(c.envelope.leaves, fromToken) {
		return c.fail("", "no member of subject or context comes from $.token: at least one must")
	}
	c.envelope.shared = t
	return c.complete(t, template{}, "")
}

// toolName is the name of the tool, which is the action of a mapping of the older dialect that has none.
type toolName struct{ declared string }

func (t toolName) append(b []byte, r *resolution) ([]byte, bool, *Error) {
	if t.declared != "" {
		return appendQuoted(b, t.declared), true, nil
	}
	name, ok := r.op.Params.Get("name")
	if !ok || name.Kind() != evaluation.String {
		return nil, false, r.fail("/action", "the mapping has no action, and the request names no tool")
	}
	return appendQuoted(b, name.Text()), true, nil
}

// template compiles the parts of a request.
func (c *compiler) template(body evaluation.Object, at string) (t template, err *Error) {
	t.at = at
	for name, v := range body.Members {
		place := at + escaped(name)
		switch {
		case name == "subject":
			t.subject, err = c.entity(v, place, namesOf(name))
		case name == "action":
			t.action, err = c.entity(v, place, namesOf(name))
		case name == "resource":
			t.resource, err = c.entity(v, place, namesOf(name))
		case name == "context":
			t.context, err = c.context(v, place)
		default:
			err = c.fail(place, "no member that a mapping can have here; there are subject, action, resource and context")
		}
		if err != nil {
			return template{}, err
		}
	}
	return t, nil
}
