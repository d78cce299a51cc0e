package lsp

import (
	"slices"

	"policy-service/pdp/cedartext"
)

// usesInSchema finds the declarations of a schema, and the types and actions that it refers to.
func usesInSchema(text string, found func(use)) {
	namespace := ""
	for _, tokens := range sentences(text) {
		for len(tokens) > 0 {
			switch t := tokens[0]; t.Text {
			case "namespace":
				var inner string
				inner, tokens = pathAfter(tokens[1:])
				namespace = inner + "::"
				continue
			case "}":
				namespace = ""
			case "entity", "action", "type":
				d := declaration{namespace: namespace, tokens: tokens, found: found}
				d.read()
				tokens = nil
				continue
			}
			tokens = tokens[1:]
		}
	}
}

// declaration is one of a schema, up to its semicolon.
type declaration struct {
	namespace string
	tokens    []cedartext.Token
	found     func(use)
	// owners have the attributes of the braces that are open: first is of those of the declaration itself.
	first  []string
	owners [][]string
}

// anyOwner is of attributes that several types may have.
var anyOwner = []string{""}

// schemaWords are words of the language that stand where a type could.
var schemaWords = []string{"in", "appliesTo", "tags", "enum", "attributes"}

func (d *declaration) is(n int, text string) bool {
	return n >= 0 && n < len(d.tokens) && d.tokens[n].Text == text
}

func (d *declaration) read() {
	kind, rest, next := d.tokens[0].Text, d.names(), anyOwner
	if kind == "entity" && len(d.first) <= mostOwners {
		next = d.first
	}
	for n := rest; n < len(d.tokens); n++ {
		t, deep := d.tokens[n], len(d.owners)
		key := d.is(n+1, ":") || d.is(n+1, "?")
		switch {
		case t.Text == "{":
			d.owners, next = append(d.owners, next), anyOwner
		case t.Text == "}" && deep > 0:
			d.owners, next = d.owners[:deep-1], anyOwner
		case key && kind == "action" && deep == 1 && d.is(n, "context"):
			next = nil
			for _, action := range d.first[:min(len(d.first), mostOwners)] {
				next = append(next, contextOf(action))
			}
		case key && deep > 0 && !(kind == "action" && deep == 1) && (t.Kind == cedartext.Name || t.Kind == cedartext.Text):
			next = d.member(t)
		case t.Kind == cedartext.Text:
			d.literal(kind, n)
		case t.Kind == cedartext.Name && !key && !d.is(n-1, "::") && !slices.Contains(schemaWords, t.Text):
			d.reference(kind, n)
		}
	}
}

// names finds the names that are declared. It returns the token behind them.
func (d *declaration) names() int {
	last := d.tokens[len(d.tokens)-1]
	for n := 1; n < len(d.tokens); n += 2 {
		t := d.tokens[n]
		id := unquoted(t)
		u := use{name: name{is: entityType, id: d.namespace + id}, from: t.Offset, to: endOf(t), defines: true, begin: d.tokens[0].Offset, end: endOf(last), detail: d.tokens[0].Text}
		if t.Kind == cedartext.Text {
			u.from, u.to = u.from+1, u.to-1
		}
		switch d.tokens[0].Text {
		case "action":
			u.name, u.detail = name{entity, d.namespace + "Action", id}, "action"
			d.first = append(d.first, id)
		case "entity":
			d.first = append(d.first, u.id)
		}
		if t.Kind == cedartext.Name || t.Kind == cedartext.Text {
			d.found(u)
		}
		if !d.is(n+1, ",") {
			return n + 1
		}
	}
	return len(d.tokens)
}

func unquoted(t cedartext.Token) string {
	if t.Kind == cedartext.Text {
		return unquote(t.Text)
	}
	return t.Text
}

// member finds an attribute, and returns the owners of its own members.
func (d *declaration) member(t cedartext.Token) (below []string) {
	for _, of := range d.owners[len(d.owners)-1] {
		u := use{name: name{attribute, of, unquoted(t)}, from: t.Offset, to: endOf(t), defines: true}
		if t.Kind == cedartext.Text {
			u.from, u.to = u.from+1, u.to-1
		}
		d.found(u)
		if of != "" && len(d.owners) < mostDeep {
			of += "\n" + u.id
		} else {
			of = ""
		}
		below = append(below, of)
	}
	return below
}

// literal finds an action in quotes, or an id that the schema lists.
func (d *declaration) literal(kind string, n int) {
	t := d.tokens[n]
	switch {
	case d.is(n-1, "::"):
		typ, _ := typeBefore(d.tokens[:n-1])
		d.found(inside(name{entity, d.qualified(typ), unquote(t.Text)}, t))
	case kind == "action":
		d.found(inside(name{entity, d.namespace + "Action", unquote(t.Text)}, t))
	case kind == "entity" && len(d.owners) == 0 && len(d.first) > 0:
		u := inside(name{entity, d.first[0], unquote(t.Text)}, t)
		u.defines = true
		d.found(u)
	}
}

// reference finds a type, or a group of actions.
func (d *declaration) reference(kind string, n int) {
	t := d.tokens[n]
	typ, rest := pathAfter(d.tokens[n:])
	if len(rest) > 0 && rest[0].Text == "::" {
		return // the type of a literal
	}
	u := use{name: name{is: entityType, id: d.qualified(typ)}, from: t.Offset, to: endOf(d.tokens[len(d.tokens)-len(rest)-1])}
	if kind == "action" && len(d.owners) == 0 {
		u.name = name{entity, d.namespace + "Action", typ}
	}
	d.found(u)
}

// qualified is a name as policies write it.
func (d *declaration) qualified(typ string) string {
	if d.namespace == "" || slices.Contains([]byte(typ), ':') {
		return typ
	}
	return d.namespace + typ
}
