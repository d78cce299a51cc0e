package coaz

import (
	"slices"
	"strings"

	"policy-service/evaluation"
)

// isLeaf reports whether a value is an expression.
func isLeaf(v evaluation.Value) bool {
	return v.Kind() == evaluation.String && strings.HasPrefix(v.Text(), "$") && !strings.HasPrefix(v.Text(), "$$")
}

// entity compiles a subject, an action or a resource.
func (c *compiler) entity(v evaluation.Value, at string, names []string) (node, *Error) {
	if isLeaf(v) {
		n, err := c.leaf(v.Text(), at, mapResult)
		return whole{at: at, names: names, node: n}, err
	}
	if v.Kind() != evaluation.Map {
		return nil, c.fail(at, notAnObject)
	}
	o := make(object, 0, len(names)+1)
	for _, name := range names {
		id, ok := v.Object().Get(name)
		if !ok {
			continue
		}
		n, err := c.name(id, at+escaped(name))
		if err != nil {
			return nil, err
		}
		o = append(o, member{name, n})
	}
	for name, more := range v.Object().Members {
		if slices.Contains(names, name) {
			continue
		}
		if name != "properties" {
			return nil, c.fail(at+escaped(name), besideProperties)
		}
		if more.Kind() != evaluation.Map && !isLeaf(more) {
			return nil, c.fail(at+escaped(name), notAnObject)
		}
		n, err := c.value(more, at+escaped(name), 2)
		if err != nil {
			return nil, err
		}
		o = append(o, member{name, n})
	}
	return o, nil
}

// name compiles a type, an id or a name.
func (c *compiler) name(v evaluation.Value, at string) (node, *Error) {
	switch {
	case isLeaf(v):
		return c.leaf(v.Text(), at, stringResult)
	case v.Kind() != evaluation.String:
		return nil, c.fail(at, "not a string")
	case v.Text() == "":
		return nil, c.fail(at, "empty")
	}
	return c.value(v, at, 2)
}

func (c *compiler) context(v evaluation.Value, at string) (node, *Error) {
	if isLeaf(v) {
		return c.leaf(v.Text(), at, mapResult)
	}
	if v.Kind() != evaluation.Map {
		return nil, c.fail(at, notAnObject)
	}
	for name := range v.Object().Members {
		switch {
		case name == "action" || name == "pdp":
			return nil, c.fail(at+escaped(name), "only the PDP sets this member of the context")
		case c.author != operator && evaluation.Protocol(name):
			return nil, c.fail(at+escaped(name), betweenPEPAndPDP)
		}
	}
	o, _, err := c.members(v.Object(), at, 1)
	return o, err
}

// members compiles the members of a map.
func (c *compiler) members(o evaluation.Object, at string, depth int) (object, []node, *Error) {
	members := make(object, 0, o.Len())
	nodes := make([]node, 0, o.Len())
	for name, v := range o.All {
		n, err := c.value(v, at+escaped(name), depth+1)
		if err != nil {
			return nil, nil, err
		}
		members, nodes = append(members, member{name, n}), append(nodes, n)
	}
	return members, nodes, nil
}

// value compiles any value: every string in it, at any depth, is a literal or an expression.
func (c *compiler) value(v evaluation.Value, at string, depth int) (node, *Error) {
	if v.Kind() >= evaluation.Array && depth > c.limits.Depth {
		return nil, c.fail(at, tooMany("levels", c.limits.Depth))
	}
	switch v.Kind() {
	case evaluation.String:
		if isLeaf(v) {
			return c.leaf(v.Text(), at, anyResult)
		}
		return c.text(v, at)
	case evaluation.Array:
		elements := make(array, 0, v.Len())
		for i, e := range v.Elements {
			n, err := c.value(e, at+indexed(i), depth+1)
			if err != nil {
				return nil, err
			}
			elements = append(elements, n)
		}
		return folded(elements, elements), nil
	case evaluation.Map:
		members, nodes, err := c.members(v.Object(), at, depth)
		if err != nil {
			return nil, err
		}
		return folded(members, nodes), nil
	}
	return literalOf(v), nil
}

// folded is a literal if all parts of a container are.
func folded(container node, parts []node) node {
	for _, n := range parts {
		if _, ok := n.(literal); !ok {
			return container
		}
	}
	text, _, _ := container.append(nil, nil)
	return literal(text)
}

// text is a string that is meant as it is, but for the $ that says so.
func (c *compiler) text(v evaluation.Value, at string) (node, *Error) {
	if c.dialect == SEP && strings.HasPrefix(v.Text(), "$") {
		return nil, c.fail(at, notSingular)
	}
	return literal(appendQuoted(nil, strings.TrimPrefix(v.Text(), "$"))), nil
}

// leaf compiles an expression.
func (c *compiler) leaf(text, at string, want result) (node, *Error) {
	if len(text) > c.limits.Expression {
		return nil, c.fail(at, tooMany("bytes in one expression", c.limits.Expression))
	}
	l := leaf{at: at, text: text, want: want}
	compile := c.expression
	if c.dialect == SEP {
		compile = c.query
	}
	n, err := compile(&l)
	c.envelope.leaves = append(c.envelope.leaves, l)
	if err != nil {
		return nil, err
	}
	if c.author != operator && len(l.reads) == 1 && l.reads[0].alone {
		switch read := l.reads[0]; {
		case at == c.envelope.at+"/subject/id" && read.is("token", "sub"):
			return claimNode{at}, nil
		case c.author == standard && at == c.envelope.at+"/resource/id" && read.is("token", "aud"):
			return audienceNode{at}, nil
		}
	}
	if want == stringResult {
		return needed{at, n}, nil
	}
	return n, nil
}

// supply adds to a declared mapping the members that its subject lacks.
func (c *compiler) supply(t *template) {
	if c.author == operator {
		return
	}
	supplied := object{{"type", literal(`"identity"`)}, {"id", claimNode{t.at + "/subject/id"}}}
	switch subject := t.subject.(type) {
	case nil:
		t.subject = supplied
	case whole:
		subject.supplied = supplied
		t.subject = subject
	case object:
		for _, m := range supplied {
			if !has(subject, m.name) {
				subject = append(subject, m)
			}
		}
		t.subject = subject
	}
}
