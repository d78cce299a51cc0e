package arguments

import (
	"errors"
	"regexp"
	"regexp/syntax"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// The limits of a pattern. RE2's automata take time in proportion to the size of a pattern and to the text.
const (
	mostPattern      = 4 << 10 // bytes of its text
	mostInstructions = 10_000
	perStep          = 32 // instructions times bytes that are one step of a check
)

// pattern is a pattern of a schema.
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

// match counts that a text is matched.
func (m *meter) match(by jsonschema.Regexp, text string) {
	m.spend(1 + by.(*pattern).size*len(text)/perStep)
}
