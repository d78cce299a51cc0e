package lsp

import (
	"cmp"
	"slices"
	"strings"

	"policy-service/pdp/internal/cedartext"
)

// usesInSchema finds the declarations of a schema, and the types and actions that it refers to.
func usesInSchema(text string, found func(use)) {
	namespace := ""
	for _, tokens := range sentences(text) {
		for len(tokens) > 0 {
			switch tokens[0].Text {
			case "namespace":
				namespace, tokens = pathAfter(tokens[1:])
				namespace += "::"
				continue
			case "}":
				namespace = ""
			case "entity", "action", "type":
				declaration{namespace, tokens, found}.read()
				tokens = tokens[:1]
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
}

func (d declaration) is(n int, texts ...string) bool {
	return n >= 0 && n < len(d.tokens) && slices.Contains(texts, d.tokens[n].Text)
}

// schemaWords are words of the language that stand where a type could.
var schemaWords = []string{"in", "appliesTo", "tags", "enum", "attributes"}

func (d declaration) read() {
	kind, actions := d.tokens[0].Text, d.namespace+"Action"
	var names, owners []string // that are declared, and that the attributes belong to
	n := 1
	for more := true; more && n < len(d.tokens); n += 2 {
		more = d.is(n+1, ",")
		t := d.tokens[n]
		is, owner := name{is: entityType, id: d.namespace + unquote(t.Text)}, ""
		switch kind {
		case "entity":
			owner = is.id
		case "action":
			is, owner = name{entity, actions, unquote(t.Text)}, "action "+unquote(t.Text)
		}
		if names, owners = append(names, is.id), append(owners, owner); t.Kind == cedartext.Name || t.Kind == cedartext.Text {
			u := named(is, t)
			u.defines, u.detail, u.begin, u.end = true, kind, d.tokens[0].Offset, endOf(d.tokens[len(d.tokens)-1])
			d.found(u)
		}
	}
	if len(owners) > mostOwners {
		owners = []string{""}
	}
	path, open := "", []string(nil) // the members that lead to the next brace, and to each that is open
	for n = max(n-1, 1); n < len(d.tokens); n++ {
		t, deep, key := d.tokens[n], len(open), d.is(n+1, ":", "?")
		switch {
		case t.Text == "{":
			open = append(open, path)
		case t.Text == "}" && deep > 0:
			open = open[:deep-1]
		case key && deep > 0 && (t.Kind == cedartext.Name || t.Kind == cedartext.Text):
			if path = open[deep-1]; kind != "action" || deep > 1 {
				d.attribute(owners, path, t)
			}
			if len(path) < mostOwner {
				path += "\n" + unquote(t.Text)
			}
		case t.Kind == cedartext.Text:
			of := map[string]string{"entity": cmp.Or(names...), "action": actions}[kind]
			if d.is(n-1, "::") {
				of = d.qualified(pathBefore(d.tokens[:n-1]))
			}
			u := named(name{entity, of, unquote(t.Text)}, t)
			u.defines = kind == "entity" // of which it lists the ids
			d.found(u)
		case t.Kind == cedartext.Name && !key && !d.is(n-1, "::") && !slices.Contains(schemaWords, t.Text):
			u := typed(d.tokens[n:])
			if d.is(n+1+2*strings.Count(u.id, "::"), "::") {
				continue // the type of a literal
			}
			if u.id = d.qualified(u.id); kind == "action" && deep == 0 {
				u.name = name{entity, actions, t.Text}
			}
			d.found(u)
		}
	}
}

// attribute finds the definition of an attribute, or of a member of one. One with a long way to it may be of any owner.
func (d declaration) attribute(owners []string, path string, t cedartext.Token) {
	for _, of := range owners {
		if of != "" && len(of)+len(path) < mostOwner {
			of += path
		} else {
			of = ""
		}
		u := named(name{attribute, of, unquote(t.Text)}, t)
		u.defines = true
		d.found(u)
	}
}

// qualified is a name as policies write it.
func (d declaration) qualified(typ string) string {
	if strings.Contains(typ, ":") {
		return typ
	}
	return d.namespace + typ
}
