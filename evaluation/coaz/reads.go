package coaz

import "slices"

// Read is a value that an expression of a mapping reads.
type Read struct {
	Dialect    Dialect
	Pointer    string // of the expression, in the mapping
	Expression string
	Root       string   // the variable: params, token or one of [Options.Inputs]
	Names      []string // the members below it, up to the first index
	// Needed counts the names, from the first, of which each must be there: without it the mapping fails.
	Needed int
}

// Reads lists the values that the expressions of a mapping read, for programs that hold a mapping against the inputSchema
// of a tool. The order is always the same.
func (m *Mapping) Reads() (all []Read) {
	for _, e := range m.envelopes {
		for _, l := range e.leaves {
			for _, s := range l.reads {
				all = append(all, l.read(e.dialect, s))
			}
		}
	}
	return all
}

func (l leaf) read(d Dialect, s selection) Read {
	r := Read{Dialect: d, Pointer: l.at, Expression: l.text, Root: s.root}
	absent := d == SEP // a value that is missing is left out, and no error
	for n, step := range s.steps {
		if step.isIndex {
			break
		}
		r.Names = append(r.Names, step.name)
		absent = absent || step.optional || l.hasTested(s.steps[:n+1])
		if !absent || s.alone && l.want == stringResult {
			r.Needed++
		}
	}
	return r
}

// hasTested reports whether the expression tests by has() that a member is there.
func (l leaf) hasTested(steps []step) bool {
	return slices.ContainsFunc(l.tested, func(s selection) bool { return s.root == "params" && slices.Equal(s.steps, steps) })
}
