package arguments

import (
	"errors"
	"regexp"
	"regexp/syntax"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// A pattern takes time in proportion to its size and to the text, by RE2's automata: none runs away. What RE2 has not, such as
// looking ahead, is an error.
const (
	mostPattern      = 4 << 10 // bytes of its text
	mostInstructions = 10_000
	// instructions times bytes that are one step of a check
	perStep = 32
)

type pattern struct {
	*regexp.Regexp
	size int
}

var errLargePattern = errors.New("the pattern is too large")

// compilePattern is the engine that the library compiles patterns with.
func compilePattern(text string) (jsonschema.Regexp, error) {
	if len(text) > mostPattern {
		return nil, errLargePattern
	}
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil, err
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return nil, err
	}
	if len(program.Inst) > mostInstructions {
		return nil, errLargePattern
	}
	compiled, err := regexp.Compile(text)
	return &pattern{compiled, len(program.Inst)}, err
}

// matches reports whether a text matches, if there are steps left to find out.
func (c *checker) matches(p *pattern, text string) bool {
	return c.spend(1+p.size*len(text)/perStep) && p.MatchString(text)
}
