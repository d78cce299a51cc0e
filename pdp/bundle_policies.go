package pdp

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/cedar-policy/cedar-go"
)

// What a policy file may be made of, checked before cedar-go parses it: 500 KB
// of parentheses overflow its stack, which nothing can catch, and 16 KB of
// `context has a.a.a…` cost it 2 GB.
const (
	maxNesting = 200
	maxChain   = 16
)

// parsePolicies reads the policies of one file.
func parsePolicies(file, tenant string, text []byte, problems *Problems) []*policy {
	if !checkText(file, text, problems) {
		return nil
	}
	list, err := cedar.NewPolicyListFromBytes(file, text)
	if err != nil {
		line, column := positionIn(err.Error())
		problems.add(file, line, column, "policy_syntax", "this is not Cedar"+expectation(err.Error()), "check the syntax at this place; a policy ends with a semicolon")
		return nil
	}
	policies := make([]*policy, 0, len(list))
	for n, c := range list {
		at := c.Position()
		p := &policy{
			id: fmt.Sprintf("%s#%d", file, n), cedar: c, tenant: tenant, file: file, line: at.Line, column: at.Column,
			position: fmt.Sprintf("%s:%d:%d", file, at.Line, at.Column), facts: factsOf(c),
		}
		annotations := c.Annotations()
		if id, ok := annotations["id"]; ok {
			p.id, p.named = string(id), true
		}
		if p.id == "" {
			problems.add(file, at.Line, at.Column, "empty_id", "the policy's @id is empty", "give it a name, or leave the annotation out")
		}
		if names, ok := annotations["obligation"]; ok {
			p.obligation = (*string)(&names)
		}
		p.cedarID, p.reasonUser = cedar.PolicyID(p.id), string(annotations["reason_user"])
		policies = append(policies, p)
	}
	return policies
}

func quote(s string) string { return strconv.Quote(s) }

// checkText bounds nesting and dotted chains of a text in Cedar's syntax.
func checkText(file string, text []byte, problems *Problems) bool {
	s := textScan{text: text, line: 1, column: 1, schema: strings.HasSuffix(file, ".cedarschema"), ifs: []int{0}}
	of, flatter := "policy", "write the condition flatter"
	if s.schema {
		of, flatter = "schema", "name inner types, and refer to them"
	}
	for s.i < len(text) {
		s.step()
		switch {
		case s.nesting() > maxNesting:
			problems.add(file, s.line, s.column, of+"_nesting", fmt.Sprintf("brackets, ifs and signs nest more than %d deep", maxNesting), flatter)
			return false
		case s.chain > maxChain:
			problems.add(file, s.line, s.column, of+"_chain", fmt.Sprintf("more than %d names in a chain of dots or colons", maxChain), "shorten the path")
			return false
		}
	}
	return true
}

// textScan walks a text, past what cedar-go takes for white space and strings,
// counting what is bounded: with anything that one of the two skips and the
// other does not, the bounds would be no bounds.
type textScan struct {
	text         []byte
	i            int
	line, column int
	schema       bool  // where < and > are brackets
	ifs          []int // at each bracket level, how many ifs are open
	open         int   // all of them
	signs        int   // ! and - in a row
	chain        int   // names in the dotted chain being read
	dot          bool  // the last thing read was a dot
}

// nesting is how deep a parser would be in its recursion.
func (s *textScan) nesting() int { return len(s.ifs) - 1 + s.open + s.signs }

func (s *textScan) step() {
	c := s.text[s.i]
	switch {
	case c == ' ', c == '\t', c == '\r', c == '\n':
		s.next()
		return
	case s.at("//"):
		for s.i < len(s.text) && s.text[s.i] != '\n' {
			s.next()
		}
		return
	case s.at("/*"):
		s.next()
		s.next()
		for s.i < len(s.text) && !s.at("*/") {
			s.next()
		}
		s.next()
		s.next()
		return
	case isNameByte(c):
		s.name()
	case c == '"':
		s.quoted()
	default:
		s.sign(c)
		return
	}
	s.signs = 0
}

func (s *textScan) at(mark string) bool { return bytes.HasPrefix(s.text[s.i:], []byte(mark)) }

func (s *textScan) quoted() {
	s.next()
	for s.i < len(s.text) && s.text[s.i] != '"' {
		if s.text[s.i] == '\\' {
			s.next()
		}
		s.next()
	}
	s.next()
	s.chain, s.dot = 0, false
}

func (s *textScan) name() {
	from := s.i
	for s.i < len(s.text) && isNameByte(s.text[s.i]) {
		s.next()
	}
	if !s.dot {
		s.chain = 0
		if string(s.text[from:s.i]) == "if" {
			s.ifs[len(s.ifs)-1]++
			s.open++
		}
	}
	s.chain++
	s.dot = false
}

func (s *textScan) sign(c byte) {
	switch {
	case c == '(' || c == '[' || c == '{' || c == '<' && s.schema:
		s.ifs = append(s.ifs, 0)
	case c == ')' || c == ']' || c == '}' || c == '>' && s.schema:
		s.endIfs()
		if len(s.ifs) > 1 {
			s.ifs = s.ifs[:len(s.ifs)-1]
		}
	case c == ',' || c == ';':
		s.endIfs()
	}
	if c == '!' || c == '-' {
		s.signs++
	} else {
		s.signs = 0
	}
	if s.at("::") { // each part copies what is before it, as a dot's does
		s.next()
		c = '.'
	}
	s.dot = c == '.'
	s.next()
}

// endIfs notes that the ifs of this level cannot go on.
func (s *textScan) endIfs() {
	level := &s.ifs[len(s.ifs)-1]
	s.open -= *level
	*level = 0
}

func (s *textScan) next() {
	if s.i >= len(s.text) {
		return
	}
	if c := s.text[s.i]; c == '\n' {
		s.line, s.column = s.line+1, 1
	} else if c < 0x80 || c >= 0xC0 { // a character, not a byte
		s.column++
	}
	s.i++
}

func isNameByte(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c >= 0x80
}
