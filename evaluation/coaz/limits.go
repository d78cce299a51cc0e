package coaz

import "policy-service/evaluation"

// Limits bound what a mapping may be and cost, all in this one place: mappings are written by the very party whose
// requests are decided, and evaluated on what its callers send. Each excess is a mapping error that names the bound.
type Limits struct {
	// Mapping is the greatest size of a mapping in bytes.
	Mapping int
	// Depth is how deep a mapping may nest.
	Depth int
	// Entries is the greatest number of decisions that one mapping may ask for.
	Entries int
	// Expression is the greatest size of one expression in bytes.
	Expression int
	// Cost is what evaluating all expressions of a mapping may cost, in the units of CEL: about one for each step, and
	// one for each ten bytes that a step goes through.
	Cost uint64
	// Values is how large a value may become that an expression builds or goes through: its scalars and containers
	// are counted, and each ten bytes of a string or number.
	Values uint32
	// Request bounds the request that is made, as the PDP bounds it.
	Request evaluation.Limits
}

// DefaultLimits are the limits of each [Binding].
func DefaultLimits() Limits {
	return Limits{
		Mapping:    32 << 10,
		Depth:      16,
		Entries:    64,
		Expression: 2 << 10,
		Cost:       10_000,
		Values:     20_000,
		Request:    evaluation.DefaultLimits(),
	}
}

// What an expression may be made of. These bounds are no options: they keep the type checker, whose work can grow
// exponentially with what it is given, to some milliseconds.
const (
	maxNesting  = 64      // of the parts of an expression
	allNodes    = 4096    // parts of all expressions of a mapping, those that macros make included
	maxMacros   = 8       // that go through a list or map, or bind a variable
	allMacros   = 128     // in all expressions of a mapping
	maxLiterals = 32      // lists, maps and optional values that are made
	allLiterals = 256     // in all expressions of a mapping
	maxPattern  = 1000    // steps of a regular expression
	allPatterns = 4000    // steps of all those of a mapping
	maxMatching = 1 << 20 // bytes of a text times steps of the pattern
)
