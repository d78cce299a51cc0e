package lsp

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"policy-service/pdp"
)

// under is the word under the cursor in an open document of policies, and the outline of its bundle. It is not ok if
// there is nothing to say.
func (w *workspace) under(uri string, p position) (d document, c cursor, o *pdp.Outline, ok bool) {
	d, o, ok = w.at(uri)
	if !ok || o == nil || path.Ext(d.file) != ".cedar" {
		return d, c, o, false
	}
	c = lookAt(d.text, offsetOf(d.text, p))
	return d, c, o, c.is != nothing
}

// hover describes the word under the cursor; nil if it is unknown.
func (w *workspace) hover(uri string, p position) *hover {
	d, c, o, ok := w.under(uri, p)
	if !ok {
		return nil
	}
	var lines []string
	switch c.is {
	case entity:
		lines = aboutEntity(o, c)
	case obligation:
		for _, one := range o.Obligations() {
			if one.Name == c.name {
				lines = append(lines, fmt.Sprintf("obligation `%s` of type `%s`", one.Name, one.Type), definedAt(one.File, one.Line))
			}
		}
	case attribute:
		for _, a := range attributesAt(o, c) {
			if a.Name == c.name {
				lines = aboutAttribute(a)
			}
		}
	case word:
		if slices.Contains(o.Types(), c.name) {
			lines = []string{"entity type `" + c.name + "`"}
			for _, a := range o.Attributes(c.name) {
				lines = append(lines, "* "+described(a))
			}
		}
	}
	if len(lines) == 0 {
		return nil
	}
	return &hover{markup{"markdown", strings.Join(lines, "\n\n")}, rangeOf(d.text, c.from, c.to)}
}

func aboutEntity(o *pdp.Outline, c cursor) []string {
	name := c.typ + "::" + strconv.Quote(c.id)
	if c.typ == o.ActionType() {
		lines := []string{"action `" + name + "`"}
		for _, a := range o.Context(c.id) {
			lines = append(lines, "* context: "+described(a))
		}
		return lines
	}
	parents, known := o.Parents(c.typ, c.id)
	if !known {
		return []string{"entity `" + name + "`, which no file of the bundle has"}
	}
	if len(parents) == 0 {
		return []string{"entity `" + name + "`", "it has no parents"}
	}
	return []string{"entity `" + name + "`", "in `" + strings.Join(parents, "`, `") + "`"}
}

func aboutAttribute(a pdp.Attribute) []string {
	lines := []string{described(a)}
	for _, m := range a.Members {
		lines = append(lines, "* "+described(m))
	}
	return lines
}

// described is an attribute in a line.
func described(a pdp.Attribute) string {
	text := "`" + a.Name + "`: " + a.Type
	switch {
	case a.Stored > 0:
		text += fmt.Sprintf("; %d entities of the bundle have it", a.Stored)
	case a.Optional:
		text += ", optional: ask with `has` first"
	}
	return text
}

func definedAt(file string, line int) string {
	if file == "" {
		return "built in"
	}
	return fmt.Sprintf("defined at %s:%d", file, line)
}

// attributesAt are the attributes that can stand where the cursor is.
func attributesAt(o *pdp.Outline, c cursor) []pdp.Attribute {
	m := members{o, map[string][]pdp.Attribute{}}
	most := map[string]string{"principal": anyType, "resource": anyType, "context": contextOf("")}[c.path[0]]
	return m.all(m.below(cmp.Or(ownerOf(c.scope, c.path[0]), most), c.path[1:]))
}

// annotations are those that mean something to the service.
var annotations = []string{"id", "obligation", "reason_user"}

// words are those of the language that can begin something.
var words = []string{"action", "context", "forbid", "permit", "principal", "resource", "unless", "when"}

// complete lists the words that can stand under the cursor.
func (w *workspace) complete(uri string, p position) []completion {
	all := []completion{}
	d, c, o, ok := w.under(uri, p)
	if !ok {
		return all
	}
	at := rangeOf(d.text, c.from, c.to)
	add := func(kind int, name, detail string) {
		all = append(all, completion{name, kind, detail, textEdit{at, name}})
	}
	quoted := func(name, detail string) {
		text := cedarQuoted(name)
		if !c.bare {
			text = text[1 : len(text)-1]
		}
		all = append(all, completion{name, kindValue, detail, textEdit{at, text}})
	}
	switch c.is {
	case entity:
		for _, id := range o.IDs(c.typ) {
			quoted(id, c.typ)
		}
	case obligation:
		for _, one := range o.Obligations() {
			quoted(one.Name, one.Type)
		}
	case attribute:
		for _, a := range attributesAt(o, c) {
			add(kindField, a.Name, a.Type)
		}
	case annotation:
		for _, name := range annotations {
			add(kindKeyword, name, "")
		}
	case word:
		for _, typ := range append(o.Types(), o.ActionType()) {
			add(kindClass, typ, "")
		}
		for _, name := range words {
			add(kindKeyword, name, "")
		}
	}
	return all
}

// cedarQuoted is a text in quotes, as Cedar reads it.
func cedarQuoted(text string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, c := range text {
		switch {
		case c == '"' || c == '\\':
			b.WriteRune('\\')
			b.WriteRune(c)
		case c < ' ' || c == 0x7f:
			fmt.Fprintf(&b, `\u{%x}`, c)
		default:
			b.WriteRune(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}
