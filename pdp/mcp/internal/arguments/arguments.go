// Package arguments holds the arguments of a call against the inputSchema of its tool.
//
// Begin with [Compile], once for each definition; [Schema.Check] says what is wrong with the arguments of one call.
//
// What a schema means is read by a library: its draft, references and keywords. Whether arguments fit is found out here,
// because a schema is somebody else's, and the library can neither be stopped nor be kept from quoting values. A check costs
// no more than its bound, whatever the schema says. What it says of arguments names places, and no value; what it says of a
// schema are numbers and names of members, and no text. Nothing outside of a schema is read, and no format is asserted.
package arguments

import (
	"errors"
	"fmt"

	"policy-service/evaluation"
)

// Members says what becomes of members that a schema does not list.
type Members uint8

const (
	// Open is what JSON Schema has: they are allowed unless the schema says otherwise.
	Open Members = iota
	// Closed refuses them at the top, and in each object of which the schema lists properties, unless the schema says
	// what they are: by additionalProperties, unevaluatedProperties, or patternProperties that they match.
	Closed
)

// Schema is a compiled inputSchema. It is immutable, and safe for concurrent use.
type Schema struct {
	root   *node
	closed bool
}

// What arguments may be to be looked at. The PDP's limits are narrower: what exceeds these cannot be asked about.
var limits = evaluation.Limits{Body: 4 << 20, Depth: 64, Elements: 1 << 16, NestedElements: 1 << 16, ArrayDepth: 64, Values: 100_000}

// ErrCostly says that to check arguments would take too long: it is not known whether they fit.
var ErrCostly = errors.New("to hold the arguments against the tool's inputSchema takes too long")

// Check says what is wrong with arguments, as they came: nothing if there are no problems. No arguments are an empty object.
// An error says that it cannot be told; then they do not fit either.
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

func (s *Schema) check(v evaluation.Value) ([]Problem, error) {
	c := checker{left: mostSteps, closed: s.closed}
	fit := c.enter(s.root, v, true)
	switch {
	case c.left < 0:
		return nil, ErrCostly
	case !fit && len(c.problems) == 0: // there is no such branch, and none may be taken for a fit
		c.problem("does not fit")
	}
	return c.problems, nil
}
