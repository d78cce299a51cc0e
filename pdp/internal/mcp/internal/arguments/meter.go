package arguments

import (
	"encoding/json"
	"errors"
	"regexp"
	"regexp/syntax"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// meter counts the cost of a check at most, before the library makes it: each schema that is applied to each value is a
// step, and so is work of the library that takes as long.
type meter struct {
	left      int // steps, less than zero if they were not enough
	looksBack bool
}

const (
	mostSteps = 1 << 15
	mostChain = 100 // schemas that lead to each other for one value
)

func (m *meter) spend(steps int) { m.left -= min(steps, m.left+1) }

// visit counts the application of a schema to a value, after so many others to that value. Where a schema may stand, there
// may be another value, or none.
func (m *meter) visit(schema, v any, chain int) {
	s, _ := schema.(*jsonschema.Schema)
	if s == nil {
		return
	}
	if m.spend(1); chain > mostChain {
		m.left = -1
	}
	if s.Bool == nil || m.looksBack { // the library goes through all members, or notes them all
		m.spend(through(v))
	}
	if m.left < 0 || s.Bool != nil {
		return
	}
	m.compare(s, v)
	for _, all := range [...][]*jsonschema.Schema{{s.Ref, s.Not, s.If, s.Then, s.Else}, s.AllOf, s.AnyOf, s.OneOf} {
		for _, next := range all {
			m.visit(next, v, chain+1)
		}
	}
	for _, next := range s.DependentSchemas {
		m.visit(next, v, chain+1)
	}
	for _, next := range s.Dependencies {
		m.visit(next, v, chain+1)
	}
	switch v := v.(type) {
	case map[string]any:
		m.object(s, v)
	case []any:
		m.array(s, v)
	}
}

func (m *meter) object(s *jsonschema.Schema, o map[string]any) {
	needed := len(s.Required) + len(s.DependentRequired) + len(s.Dependencies)
	for name := range o {
		names, _ := s.Dependencies[name].([]string)
		needed += len(names) + len(s.DependentRequired[name])
	}
	m.spend(needed / 8)
	if m.looksBack {
		m.spend(len(o))
	}
	for name, v := range o {
		if m.left < 0 {
			return
		}
		m.visit(s.Properties[name], v, 0)
		for pattern, next := range s.PatternProperties {
			m.match(pattern, name)
			if m.visit(next, v, 0); m.left < 0 {
				return
			}
		}
		m.visit(s.AdditionalProperties, v, 0)
		m.visit(s.UnevaluatedProperties, v, 0)
		m.visit(s.PropertyNames, name, 0)
	}
}

func (m *meter) array(s *jsonschema.Schema, all []any) {
	if m.looksBack {
		m.spend(len(all))
	}
	for n, v := range all {
		if m.left < 0 {
			return
		}
		if n < len(s.PrefixItems) {
			m.visit(s.PrefixItems[n], v, 0)
		}
		if list, ok := s.Items.([]*jsonschema.Schema); ok && n < len(list) {
			m.visit(list[n], v, 0)
		}
		m.visit(s.Items, v, 0)
		m.visit(s.AdditionalItems, v, 0)
		m.visit(s.Items2020, v, 0)
		m.visit(s.Contains, v, 0)
		m.visit(s.UnevaluatedItems, v, 0)
	}
}

// through is the cost to go through the members or elements of a value.
func through(v any) int {
	switch v := v.(type) {
	case map[string]any:
		return 1 + len(v)/8
	case []any:
		return 1 + len(v)/8
	}
	return 0
}

// compare counts the keywords that compare a value itself.
func (m *meter) compare(s *jsonschema.Schema, v any) {
	switch v := v.(type) {
	case json.Number:
		if m.spend(2); s.Minimum != nil || s.Maximum != nil || s.ExclusiveMinimum != nil || s.ExclusiveMaximum != nil || s.MultipleOf != nil {
			m.spend(4)
		}
	case string:
		m.spend(len(v) / 256)
		if s.Pattern != nil {
			m.match(s.Pattern, v)
		}
	}
	if s.Enum != nil {
		m.spend(len(s.Enum.Values) * m.weight(v) / 16)
	}
	if s.Const != nil {
		m.spend(m.weight(v) / 16)
	}
	if all, ok := v.([]any); ok && s.UniqueItems {
		m.unique(all)
	}
}

// unique counts the comparison of all elements. The library finds equal ones by a hash. Of arrays and objects a caller can
// make many with one hash, and then each is compared with each.
func (m *meter) unique(all []any) {
	weight, nested := 0, 0
	for _, v := range all {
		weight += m.weight(v)
		switch v.(type) {
		case []any, map[string]any:
			nested++
		}
	}
	m.spend((weight + nested*weight) / 16)
}

// weight is the cost of a comparison of a value, in sixteenths of a step.
func (m *meter) weight(v any) int {
	weight := 1
	switch v := v.(type) {
	case json.Number:
		weight = 80
	case string:
		weight = 1 + len(v)/64
	case []any:
		for _, e := range v {
			weight += m.weight(e)
		}
	case map[string]any:
		for _, e := range v {
			weight += 1 + m.weight(e)
		}
	}
	return weight
}

// The limits of a pattern. RE2's automata take time in proportion to the size of a pattern and to the text.
const (
	mostPattern      = 4 << 10 // bytes of its text
	mostInstructions = 10_000
	perStep          = 32 // instructions times bytes that are one step of a check
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

func (m *meter) match(by jsonschema.Regexp, text string) {
	m.spend(1 + by.(*pattern).size*len(text)/perStep)
}
