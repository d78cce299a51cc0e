package lsp

import (
	"slices"
	"strconv"
	"strings"

	"policy-service/pdp/internal/cedartext"
)

// cursor is the word under the cursor in a text of policies, whole or not.
type cursor struct {
	is       thing
	from, to int // the word itself, in bytes
	// typ and id are of an entity, name is the word otherwise. path are the names before it, the variable first.
	typ, id, name string
	path          []string
	bare          bool // the quotes of the id are not written yet
	scope         scope
}

// thing is a kind of word.
type thing uint8

const (
	nothing thing = iota
	entity
	obligation
	attribute
	annotation
	policy
	testName
	entityType
	word // a type, a variable or a word of the language
)

// scope has the variables that the head of a policy fixes, "" for others.
type scope struct{ principal, action, resource string }

// lookAt finds the word at a byte of a text, or the one that ends there.
func lookAt(text string, at int) cursor {
	var tokens []cedartext.Token
	for _, t := range cedartext.Lex(text) {
		if t.Offset >= at {
			if n := len(tokens); n > 0 && tokens[n-1].End().Offset == at && tokens[n-1].Kind != cedartext.Sign || t.Offset > at || t.Trivia() {
				break
			}
			tokens = append(tokens, t)
			break
		}
		if t.Kind == cedartext.Comment && at <= t.End().Offset {
			return cursor{}
		}
		if !t.Trivia() {
			tokens = append(tokens, t)
		} else if at <= t.End().Offset { // the cursor is in white space: nothing of a word is there yet
			tokens = append(tokens, cedartext.Token{Kind: cedartext.Name, Position: cedartext.Position{Offset: at}})
			break
		}
	}
	if len(tokens) == 0 { // at the beginning of the text
		tokens = []cedartext.Token{{Kind: cedartext.Name}}
	}
	return look(tokens, at)
}

// look gives the last token its kind.
func look(tokens []cedartext.Token, at int) (c cursor) {
	n := len(tokens) - 1
	last := tokens[n]
	c.from, c.to, c.scope = last.Offset, last.End().Offset, scopeOf(tokens)
	sign := func(i int, text string) bool {
		return i >= 0 && tokens[i].Kind == cedartext.Sign && tokens[i].Text == text
	}
	quoted := last.Kind == cedartext.Text || last.Kind == cedartext.Unknown && strings.HasPrefix(last.Text, `"`)
	switch {
	case quoted && sign(n-1, "::"):
		c.is, c.typ, c.id = entity, pathBefore(tokens[:n-1]), unquote(last.Text)
		c.inQuotes(last)
	case sign(n, "::"):
		c.is, c.typ, c.bare = entity, pathBefore(tokens[:n]), true
		c.from, c.to = at, at
	case quoted && sign(n-1, "(") && n >= 3 && tokens[n-2].Text == "obligation" && sign(n-3, "@"):
		c.is, c.name = obligation, unquote(last.Text)
		c.inQuotes(last)
	case last.Kind == cedartext.Name && sign(n-1, "."), sign(n, "."):
		end := n
		if last.Kind == cedartext.Name {
			end, c.name = n-1, last.Text
		} else {
			c.from, c.to = at, at
		}
		if c.path = namesBefore(tokens[:end+1]); c.path != nil {
			c.is = attribute
		}
	case last.Kind == cedartext.Name && sign(n-1, "@"), sign(n, "@"):
		if c.is, c.name = annotation, last.Text; last.Kind != cedartext.Name {
			c.name, c.from, c.to = "", at, at
		}
	case last.Kind == cedartext.Name:
		c.is, c.name = word, last.Text
		if sign(n-1, "::") {
			c.name = pathBefore(tokens[:n-1]) + "::" + c.name
		}
	}
	return c
}

// inQuotes leaves the quotes out.
func (c *cursor) inQuotes(t cedartext.Token) {
	c.from++
	if t.Kind == cedartext.Text {
		c.to--
	}
}

func unquote(text string) string {
	if s, err := strconv.Unquote(text); err == nil {
		return s
	}
	return strings.Trim(text, `"`)
}

// pathBefore is the name of a type that tokens end with.
func pathBefore(tokens []cedartext.Token) string {
	var names []string
	for n := len(tokens) - 1; n >= 0 && tokens[n].Kind == cedartext.Name; n -= 2 {
		names = append(names, tokens[n].Text)
		if n < 2 || tokens[n-1].Text != "::" {
			break
		}
	}
	slices.Reverse(names)
	return strings.Join(names, "::")
}

// namesBefore are the names, with a variable at their beginning, that tokens end with before a dot.
func namesBefore(tokens []cedartext.Token) (names []string) {
	for n := len(tokens) - 1; n >= 1 && tokens[n].Text == "." && tokens[n-1].Kind == cedartext.Name; n -= 2 {
		names = append(names, tokens[n-1].Text)
	}
	slices.Reverse(names)
	if len(names) == 0 || !slices.Contains([]string{"principal", "resource", "context", "action"}, names[0]) {
		return nil
	}
	return names
}

// scopeOf reads the head of the policy in which tokens end.
func scopeOf(tokens []cedartext.Token) (s scope) {
	begins := -1
	for n := len(tokens) - 2; n >= 0; n-- {
		if t := tokens[n].Text; (t == "permit" || t == "forbid") && tokens[n+1].Text == "(" {
			begins = n + 2
			break
		}
	}
	if begins < 0 {
		return s
	}
	for n := begins; n+2 < len(tokens) && tokens[n].Text != ")"; n++ {
		of := map[string]*string{"principal": &s.principal, "action": &s.action, "resource": &s.resource}[tokens[n].Text]
		if of == nil {
			continue
		}
		typ, rest := pathAfter(tokens[n+2:])
		switch op := tokens[n+1].Text; {
		case tokens[n].Text == "action" && op == "==" && len(rest) > 1 && rest[0].Text == "::":
			*of = unquote(rest[1].Text)
		case tokens[n].Text != "action" && (op == "is" || op == "=="):
			*of = typ
		}
	}
	return s
}

// pathAfter is the name of a type that tokens begin with, and the rest.
func pathAfter(tokens []cedartext.Token) (string, []cedartext.Token) {
	var names []string
	for len(tokens) > 0 && tokens[0].Kind == cedartext.Name {
		names, tokens = append(names, tokens[0].Text), tokens[1:]
		if len(tokens) < 2 || tokens[0].Text != "::" || tokens[1].Kind != cedartext.Name {
			break
		}
		tokens = tokens[1:]
	}
	return strings.Join(names, "::"), tokens
}
