package arguments

import (
	"errors"
	"regexp"
	"regexp/syntax"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// A pattern takes time in proportion to its size and to the text, by RE2's automata: none runs away. What RE2 has not is an
// error, but for one thing that schemas are generated with: a pattern that looks ahead from the beginning of the text, as
// ^(?!x)(?=.*y)z does, is several patterns that hold for the same text.
const (
	mostPattern      = 4 << 10 // bytes of its text
	mostInstructions = 10_000
	// instructions times bytes that are one step of a check
	perStep = 32
)

// pattern is a pattern of a schema.
type pattern struct {
	text  string
	parts []part
	size  int
}

// part is a pattern that a text must match, or must not.
type part struct {
	*regexp.Regexp
	not bool
}

var errLargePattern = errors.New("the pattern is too large")

// compilePattern is the engine that the library compiles patterns with.
func compilePattern(text string) (jsonschema.Regexp, error) {
	if len(text) > mostPattern {
		return nil, errLargePattern
	}
	p := &pattern{text: text}
	begin, rest := aheads(text)
	for _, ahead := range begin {
		if err := p.add("^(?:"+ahead[len("(?="):len(ahead)-1]+")", ahead[2] == '!'); err != nil {
			return nil, err
		}
	}
	return p, p.add(rest, false)
}

func (p *pattern) add(text string, not bool) error {
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return err
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return err
	}
	if p.size += len(program.Inst); p.size > mostInstructions {
		return errLargePattern
	}
	compiled, err := regexp.Compile(text)
	p.parts = append(p.parts, part{compiled, not})
	return err
}

// String implements [jsonschema.Regexp].
func (p *pattern) String() string { return p.text }

// MatchString implements [jsonschema.Regexp].
func (p *pattern) MatchString(text string) bool {
	for _, one := range p.parts {
		if one.Regexp.MatchString(text) == one.not {
			return false
		}
	}
	return true
}

// matches reports whether a text matches, if there are steps left to find out.
func (c *checker) matches(p *pattern, text string) bool {
	return c.spend(1+p.size*len(text)/perStep) && p.MatchString(text)
}

// aheads are the groups at the beginning of a text with which a pattern looks ahead, and the pattern without them. There are
// none if they are for one of several alternatives.
func aheads(text string) (all []string, rest string) {
	rest, ok := strings.CutPrefix(text, "^")
	for ok && (strings.HasPrefix(rest, "(?!") || strings.HasPrefix(rest, "(?=")) {
		end, _ := scanPattern(rest[1:], ')')
		if end < 0 {
			return nil, text
		}
		all, rest = append(all, rest[:end+2]), rest[end+2:]
	}
	if _, alternatives := scanPattern(rest, 0); len(all) == 0 || alternatives || rest != "" && strings.ContainsRune("*+?{", rune(rest[0])) {
		return nil, text
	}
	return all, "^" + rest
}

// scanPattern is where a byte stands outside of the groups and classes of a pattern, -1 if it does not, and whether a | does
// before it.
func scanPattern(text string, until byte) (at int, alternatives bool) {
	depth, class := 0, false
	for at = 0; at < len(text); at++ {
		switch c := text[at]; {
		case c == '\\':
			at++
		case class:
			class = c != ']'
		case c == '[':
			class = true
		case depth == 0 && until != 0 && c == until:
			return at, alternatives
		case c == '(':
			depth++
		case c == ')':
			depth--
		case c == '|' && depth == 0:
			alternatives = true
		}
	}
	return -1, alternatives
}
