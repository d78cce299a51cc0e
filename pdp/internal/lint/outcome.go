package lint

// termOutcome is the result of evaluating a term.
type termOutcome uint8

const (
	outcomeFalse   termOutcome = iota // false, or one value
	outcomeTrue                       // true, or another value
	outcomeOddType                    // a value of a type that the term was not written for
	outcomeError
	allOutcomes = iota
)

// termOutcomes is a set of pairs. A pair holds the outcomes of one term in two requests:
// the request that the policy's author had in mind, and the same request after the caller
// changed one thing about one attribute. Polarity alone cannot tell all cases apart. In
// `!(context has a) || (context has a && …)` the change makes the second test false, and
// the whole condition stays true. Pairs show that.
type termOutcomes uint16

func pairOf(before, after termOutcome) termOutcomes { return 1 << (before*allOutcomes + after) }

func pairsOf(before, after []termOutcome) (o termOutcomes) {
	for _, b := range before {
		for _, a := range after {
			o |= pairOf(b, a)
		}
	}
	return o
}

var (
	anything = []termOutcome{outcomeFalse, outcomeTrue}
	// same is for a term that the change does not touch. differs is for a term whose
	// value the change can turn into any other.
	same    = pairOf(outcomeFalse, outcomeFalse) | pairOf(outcomeTrue, outcomeTrue)
	differs = pairsOf(anything, anything)
)

func (o termOutcomes) has(before, after termOutcome) bool { return o&pairOf(before, after) != 0 }

// each yields the pairs of the set.
func (o termOutcomes) each(yield func(before, after termOutcome) bool) {
	for b := range termOutcome(allOutcomes) {
		for a := range termOutcome(allOutcomes) {
			if o.has(b, a) && !yield(b, a) {
				return
			}
		}
	}
}

// with combines the outcomes of two terms, each request by itself.
func (o termOutcomes) with(other termOutcomes, f func(x, y termOutcome) termOutcome) (result termOutcomes) {
	for b1, a1 := range o.each {
		for b2, a2 := range other.each {
			result |= pairOf(f(b1, b2), f(a1, a2))
		}
	}
	return result
}

// not is what the negation of a term can come to. An error stays an error.
func (o termOutcomes) not() termOutcomes {
	return o.with(same, func(x, _ termOutcome) termOutcome {
		switch x {
		case outcomeFalse:
			return outcomeTrue
		case outcomeTrue:
			return outcomeFalse
		}
		return outcomeError
	})
}

func and(x, y termOutcome) termOutcome {
	switch {
	case x == outcomeFalse:
		return outcomeFalse
	case x == outcomeTrue && y <= outcomeTrue:
		return y
	}
	return outcomeError
}

func or(x, y termOutcome) termOutcome {
	switch {
	case x == outcomeTrue:
		return outcomeTrue
	case x == outcomeFalse && y <= outcomeTrue:
		return y
	}
	return outcomeError
}

// choose returns the outcomes of if-then-else.
func choose(test, then, otherwise termOutcomes) (result termOutcomes) {
	branch := func(test, then, otherwise termOutcome) termOutcome {
		switch test {
		case outcomeTrue:
			return then
		case outcomeFalse:
			return otherwise
		}
		return outcomeError
	}
	for b, a := range test.each {
		for b1, a1 := range then.each {
			for b2, a2 := range otherwise.each {
				result |= pairOf(branch(b, b1, b2), branch(a, a1, a2))
			}
		}
	}
	return result
}

// joinedOutcomes returns the outcomes of an operator whose result is not modelled. An operand
// that errs makes an error. Operands that are the same before and after make the same
// result. All other operands can make any result. If takesAll is set, the operator accepts
// every type, so an operand of an odd type makes a value too.
func joinedOutcomes(operands []termOutcomes, takesAll bool) termOutcomes {
	// The state (true, true) says that no operand has changed yet. (true, false) says that one has.
	state := pairOf(outcomeTrue, outcomeTrue)
	for _, o := range operands {
		var next termOutcomes
		for b, a := range o.each {
			for b0, a0 := range state.each {
				next |= join(b0, b, a0, a, takesAll)
			}
		}
		state = next
	}
	return spread(state)
}

func join(b0, b, a0, a termOutcome, takesAll bool) termOutcomes {
	fails := func(x, y termOutcome) bool {
		return x == outcomeError || y == outcomeError || y == outcomeOddType && !takesAll
	}
	before, after := outcomeTrue, outcomeTrue
	if a0 != b0 || a != b {
		after = outcomeFalse
	}
	if fails(b0, b) {
		before = outcomeError
	}
	if fails(a0, a) {
		after = outcomeError
	}
	return pairOf(before, after)
}

// spread turns a state, which only says whether operands changed, into all outcomes that it can have.
func spread(state termOutcomes) (result termOutcomes) {
	for b, a := range state.each {
		switch {
		case b == outcomeError && a == outcomeError:
			result |= pairOf(outcomeError, outcomeError)
		case b == outcomeError:
			result |= pairsOf([]termOutcome{outcomeError}, anything)
		case a == outcomeError:
			result |= pairsOf(anything, []termOutcome{outcomeError})
		case b == a:
			result |= same
		default:
			result |= differs
		}
	}
	return result
}
