package lsp

import (
	"path"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"policy-service/pdp"
	"policy-service/pdp/internal/cedartext"
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
	mostDeep   = 32      // steps from a variable to an attribute; behind more it may be of any
	mostOwner  = 1 << 10 // bytes of the owner of an attribute, likewise
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

// named is the use of a name that is one token, with quotes or without.
func named(n name, t cedartext.Token) use {
	u := use{name: n, from: t.Offset, to: endOf(t)}
	if t.Kind == cedartext.Text {
		u.from, u.to = u.from+1, u.to-1
	}
	return u
}

// typed is the use of the type whose name tokens begin with.
func typed(tokens []cedartext.Token) use {
	typ, rest := pathAfter(tokens)
	return use{name: name{is: entityType, id: typ}, from: tokens[0].Offset, to: endOf(tokens[len(tokens)-len(rest)-1])}
}

func usesInPolicies(file, text string, o *pdp.Outline, found func(use)) {
	m := members{o, map[string][]pdp.Attribute{}}
	for n, tokens := range sentences(text) {
		begin, end := tokens[0].Offset, endOf(tokens[len(tokens)-1])
		itself := use{name: name{is: policy, id: file + "#" + strconv.Itoa(n)}, defines: true, begin: begin, end: end}
		for n, t := range tokens {
			sign := func(at int, text string) bool { return at >= 0 && at < len(tokens) && tokens[at].Text == text }
			annotates := t.Kind == cedartext.Text && sign(n-1, "(") && sign(n-3, "@")
			switch {
			case t.Kind == cedartext.Text && sign(n-1, "::"):
				typ := pathBefore(tokens[:n-1])
				if found(named(name{entity, typ, unquote(t.Text)}, t)); typ != "" {
					found(typed(tokens[n-2-2*strings.Count(typ, "::") : n-1]))
				}
			case annotates && tokens[n-2].Text == "obligation":
				eachListed(t, found)
			case annotates && tokens[n-2].Text == "id":
				id := named(name{}, t)
				itself.id, itself.from, itself.to = unquote(t.Text), id.from, id.to
			case t.Kind == cedartext.Name && sign(n-1, "is"):
				found(typed(tokens[n:]))
			case itself.detail == "" && (t.Text == "permit" || t.Text == "forbid") && sign(n+1, "("):
				if itself.detail = t.Text; itself.to == 0 {
					itself.from, itself.to = t.Offset, endOf(t)
				}
			}
		}
		if itself.detail != "" {
			found(itself)
		}
		p, s := places.Policy{Text: text[begin:end], Tokens: places.Tokens(text[begin:end])}, scopeOf(tokens)
		for _, part := range p.Reads() {
			last := len(part.Names) - 1
			of := ""
			if last <= mostDeep {
				of = m.below(ownerOf(s, part.Variable), part.Names[:last])
			}
			u := use{name: name{attribute, of, part.Names[last]}, from: begin + part.At, to: begin + part.At + len(part.Names[last])}
			if p.Text[part.At] == '"' {
				u.from, u.to = u.from+1, u.to+1
			}
			found(u)
		}
	}
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
			is := map[string]thing{"name": testName, "determining": policy, "obligations": obligation}[key.Value]
			for _, one := range append([]*yaml.Node{value}, value.Content...) {
				if is != nothing {
					place(one, is, is == testName)
				}
			}
		})
	}
}
