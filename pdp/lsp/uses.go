package lsp

import (
	"path"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"policy-service/pdp"
	"policy-service/pdp/cedartext"
	"policy-service/pdp/internal/places"
)

// name is of something that files of a bundle define and use.
type name struct {
	is thing
	of string // of an entity its type; of an attribute the type, record or context that has it: "" for any
	id string
}

// same reports whether two names can be of one thing.
func (n name) same(other name) bool {
	return n.is == other.is && n.id == other.id && (n.of == other.of || n.is == attribute && (n.of == "" || other.of == ""))
}

// use is a place in a text where a name stands, in bytes. Of a definition the whole is known too.
type use struct {
	name
	from, to   int
	defines    bool
	begin, end int
	detail     string
}

// The bounds of an answer: a name may stand anywhere in a bundle that its author makes.
const (
	mostText   = 1 << 20 // bytes of a file whose names are looked for
	mostFound  = 5_000   // places
	mostOwners = 16      // that one attribute has; with more it may be of any
	mostDeep   = 32      // steps from an attribute to its member
)

// usesIn finds the names in a file of a bundle.
func usesIn(file, text string, o *pdp.Outline, found func(use)) {
	if len(text) > mostText {
		return
	}
	switch home := inHome(file); {
	case path.Ext(home) == ".cedar":
		usesInPolicies(file, text, o, found)
	case path.Ext(home) == ".cedarschema":
		usesInSchema(text, found)
	case home == "obligations.yaml", strings.HasPrefix(home, "tests/"):
		usesInYAML(text, home != "obligations.yaml", found)
	}
}

// sentences are the tokens of a text up to each semicolon, without white space and comments.
func sentences(text string) (all [][]cedartext.Token) {
	var one []cedartext.Token
	for t := range cedartext.Tokens(text) {
		if !t.Trivia() {
			one = append(one, t)
		}
		if t.Text == ";" {
			all, one = append(all, one), nil
		}
	}
	if one != nil {
		all = append(all, one)
	}
	return all
}

func endOf(t cedartext.Token) int { return t.Offset + len(t.Text) }

// inside is the use of a name that is written in quotes.
func inside(n name, t cedartext.Token) use {
	return use{name: n, from: t.Offset + 1, to: endOf(t) - 1}
}

func usesInPolicies(file, text string, o *pdp.Outline, found func(use)) {
	m := members{o: o, known: map[string][]pdp.Attribute{}}
	for n, tokens := range sentences(text) {
		begin, end := tokens[0].Offset, endOf(tokens[len(tokens)-1])
		itself := use{name: name{is: policy, id: file + "#" + strconv.Itoa(n)}, defines: true, begin: begin, end: end}
		for n, t := range tokens {
			sign := func(at int, text string) bool { return at >= 0 && at < len(tokens) && tokens[at].Text == text }
			switch {
			case t.Kind == cedartext.Text && sign(n-1, "::"):
				typ, first := typeBefore(tokens[:n-1])
				found(inside(name{entity, typ, unquote(t.Text)}, t))
				if typ != "" {
					found(use{name: name{is: entityType, id: typ}, from: first, to: endOf(tokens[n-2])})
				}
			case t.Kind == cedartext.Text && sign(n-1, "(") && sign(n-3, "@") && tokens[n-2].Text == "obligation":
				eachListed(t, found)
			case t.Kind == cedartext.Text && sign(n-1, "(") && sign(n-3, "@") && tokens[n-2].Text == "id":
				itself.id, itself.from, itself.to = unquote(t.Text), t.Offset+1, endOf(t)-1
			case t.Kind == cedartext.Name && sign(n-1, "is"):
				if typ, rest := pathAfter(tokens[n:]); typ != "" {
					found(use{name: name{is: entityType, id: typ}, from: t.Offset, to: endOf(tokens[len(tokens)-len(rest)-1])})
				}
			case itself.detail == "" && (t.Text == "permit" || t.Text == "forbid") && sign(n+1, "("):
				if itself.detail = t.Text; itself.to == 0 {
					itself.from, itself.to = t.Offset, endOf(t)
				}
			}
		}
		if itself.detail != "" {
			found(itself)
		}
		if end > begin {
			m.uses(places.Policy{Text: text[begin:end], Tokens: places.Tokens(text[begin:end])}, begin, scopeOf(tokens), found)
		}
	}
}

// typeBefore is the name of a type that tokens end with, and where it begins.
func typeBefore(tokens []cedartext.Token) (typ string, first int) {
	n := len(tokens) - 1
	if n < 0 {
		return "", 0
	}
	for n > 1 && tokens[n].Kind == cedartext.Name && tokens[n-1].Text == "::" {
		n -= 2
	}
	return pathBefore(tokens), tokens[n].Offset
}

// eachListed finds the obligations that an annotation names.
func eachListed(t cedartext.Token, found func(use)) {
	at := t.Offset + 1
	for one := range strings.SplitSeq(t.Text[1:len(t.Text)-1], ",") {
		id := strings.TrimSpace(one)
		from := at + strings.Index(one, id)
		found(use{name: name{is: obligation, id: unquote(`"` + id + `"`)}, from: from, to: from + len(id)})
		at += len(one) + 1
	}
}

// members know which type, record or context an attribute belongs to.
type members struct {
	o     *pdp.Outline
	known map[string][]pdp.Attribute
}

// uses finds the attributes that a policy reads. It begins at a byte of its text.
func (m members) uses(p places.Policy, begin int, s scope, found func(use)) {
	for _, part := range p.Reads() {
		last := len(part.Names) - 1
		of := map[string]string{"principal": s.principal, "resource": s.resource, "context": contextOf(s.action)}[part.Variable]
		if last > mostDeep {
			of = ""
		}
		for _, step := range part.Names[:min(last, mostDeep)] {
			of = m.below(of, step)
		}
		u := use{name: name{attribute, of, part.Names[last]}, from: begin + part.At, to: begin + part.At + len(part.Names[last])}
		if p.Text[part.At] == '"' {
			u.from, u.to = u.from+1, u.to+1
		}
		found(u)
	}
}

// contextOf is the owner of the members of the context of an action; "" if that is any.
func contextOf(action string) string {
	if action == "" {
		return ""
	}
	return "context " + action
}

// below is the owner of the members of an attribute.
func (m members) below(of, step string) string {
	if of == "" || m.o == nil {
		return ""
	}
	all, known := m.known[of]
	if !known {
		if action, is := strings.CutPrefix(of, "context "); is {
			all = m.o.Context(action)
		} else {
			all = m.o.Attributes(of)
		}
		m.known[of] = all
	}
	n := slices.IndexFunc(all, func(a pdp.Attribute) bool { return a.Name == step })
	switch {
	case n < 0:
		return ""
	case len(all[n].Members) == 0: // a reference to an entity, if to anything
		return all[n].Type
	}
	m.known[of+"\n"+step] = all[n].Members
	return of + "\n" + step
}

// usesInYAML finds the obligations that a file defines, or the tests with the policies and the obligations that they name.
func usesInYAML(text string, tests bool, found func(use)) {
	var root yaml.Node
	if yaml.Unmarshal([]byte(text), &root) != nil || len(root.Content) == 0 {
		return
	}
	at := walker{text: text}
	place := func(n *yaml.Node, is thing, defines bool) {
		from := at.find(n.Line-1, n.Column-1)
		if strings.HasPrefix(text[from:], `"`) || strings.HasPrefix(text[from:], "'") {
			from++
		}
		if n.Kind == yaml.ScalarNode && n.Value != "" && strings.HasPrefix(text[from:], n.Value) {
			to := from + len(n.Value)
			found(use{name: name{is: is, id: n.Value}, from: from, to: to, defines: defines, begin: from, end: to})
		}
	}
	each := func(n *yaml.Node, do func(key, value *yaml.Node)) {
		for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
			do(n.Content[i], n.Content[i+1])
		}
	}
	if !tests {
		each(root.Content[0], func(key, _ *yaml.Node) { place(key, obligation, true) })
		return
	}
	for _, test := range root.Content[0].Content {
		each(test, func(key, value *yaml.Node) {
			is := map[string]thing{"determining": policy, "obligations": obligation}[key.Value]
			switch {
			case key.Value == "name":
				place(value, testName, true)
			case is != nothing && value.Kind == yaml.SequenceNode:
				for _, item := range value.Content {
					place(item, is, false)
				}
			}
		})
	}
}
