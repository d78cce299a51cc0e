// Package arguments checks the arguments of a call against the inputSchema of its tool.
//
// Begin with [Compile], once for each definition; [Schema.Check] lists the problems of the arguments of one call.
//
// A library reads schemas and applies them. It cannot be stopped, it quotes values, and it fetches references, and schemas
// come from strangers. So nothing outside of a schema is read, the steps of a check are counted before the check is made
// (see meter), and problems name places and keywords, never values. No format is asserted.
package arguments

import (
	"errors"
	"fmt"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"policy-service/evaluation"
)

// Members says which members objects may have besides those that a schema lists.
type Members uint8

const (
	// Open allows them unless the schema says otherwise, as JSON Schema does.
	Open Members = iota
	// Closed refuses them at the top, and in each object of which the schema lists properties, unless the schema says
	// what they are: by additionalProperties, unevaluatedProperties, or patternProperties that they match.
	Closed
)

// Schema is a compiled inputSchema. It is immutable, and safe for concurrent use.
type Schema struct {
	root *jsonschema.Schema
	// looksBack says that a keyword applies to members or elements that no other keyword applies to.
	looksBack bool
}

// The limits of arguments. Those of a question to the PDP are narrower.
var limits = evaluation.Limits{Body: 4 << 20, Depth: 64, Elements: 1 << 16, NestedElements: 1 << 16, ArrayDepth: 64, Values: 100_000}

// ErrCostly says that a check of the arguments would take too long. Such arguments do not fit: a caller must not be able to
// avoid the check by adding to them.
var ErrCostly = errors.New("to hold the arguments against the tool's inputSchema takes too long")

// Check lists the problems of arguments as they came; none if they fit. No arguments are an empty object. With an error
// they do not fit either.
func (s *Schema) Check(arguments []byte) ([]Problem, error) {
	if arguments == nil {
		arguments = []byte("{}")
	}
	o, err := evaluation.ParseWithNulls(arguments, limits)
	if err != nil {
		return nil, fmt.Errorf("the arguments: %w", err)
	}
	return s.check(o.Value())
}

func (s *Schema) check(v evaluation.Value) (problems []Problem, err error) {
	defer func() { // a stranger's schema may find a mistake in the library
		if why := recover(); why != nil {
			problems, err = nil, errors.New("the arguments cannot be held against the tool's inputSchema")
		}
	}()
	arguments, err := (&document{what: "the arguments"}).plain(v, "")
	if err != nil {
		return nil, err
	}
	m := meter{left: mostSteps, looksBack: s.looksBack}
	if m.visit(s.root, arguments, 0); m.left < 0 {
		return nil, ErrCostly
	}
	return problemsOf(s.root.Validate(arguments)), nil
}
