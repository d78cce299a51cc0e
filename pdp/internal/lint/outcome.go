package lint

// termOutcome is what a term comes to.
type termOutcome uint8

const (
	no  termOutcome = iota // false, or one value
	yes                    // true, or another value
	odd                    // a value of a type that the term was not written for
	err
	allOutcomes = iota
)

// termOutcomes are the pairs that a term can come to in two requests at once: one as
// the policy's author had it in mind, and the same one after the caller changed
// one thing about one attribute. Pairs keep apart what polarity alone cannot: in
// `!(context has a) || (context has a && …)` the second test loses by the
// change, and the whole does not.
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
	anything = []termOutcome{no, yes}
	// same is what the change does not touch, differs what can become anything.
	same    = pairOf(no, no) | pairOf(yes, yes)
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

// with combines what two terms come to, each request by itself.
func (o termOutcomes) with(other termOutcomes, f func(x, y termOutcome) termOutcome) (result termOutcomes) {
	for b1, a1 := range o.each {
		for b2, a2 := range other.each {
			result |= pairOf(f(b1, b2), f(a1, a2))
		}
	}
	return result
}

func (o termOutcomes) not() termOutcomes {
	return o.with(same, func(x, _ termOutcome) termOutcome {
		switch x {
		case no:
			return yes
		case yes:
			return no
		}
		return err
	})
}

func and(x, y termOutcome) termOutcome {
	switch {
	case x == no:
		return no
	case x == yes && y <= yes:
		return y
	}
	return err
}

func or(x, y termOutcome) termOutcome {
	switch {
	case x == yes:
		return yes
	case x == no && y <= yes:
		return y
	}
	return err
}

// choose is if-then-else.
func choose(test, then, otherwise termOutcomes) (result termOutcomes) {
	branch := func(test, then, otherwise termOutcome) termOutcome {
		switch test {
		case yes:
			return then
		case no:
			return otherwise
		}
		return err
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

// joined is what an operator of unknown result makes of its operands: an error
// of an error, the same of the same, else anything. One that takes every type
// makes a value of an odd one as well.
func joinedOutcomes(operands []termOutcomes, takesAll bool) termOutcomes {
	state := pairOf(yes, yes) // nothing has changed yet; (yes, no) is that something has
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
	fails := func(x, y termOutcome) bool { return x == err || y == err || y == odd && !takesAll }
	before, after := yes, yes
	if a0 != b0 || a != b {
		after = no
	}
	if fails(b0, b) {
		before = err
	}
	if fails(a0, a) {
		after = err
	}
	return pairOf(before, after)
}

// spread makes what changed and what did not into all the values it can have.
func spread(state termOutcomes) (result termOutcomes) {
	for b, a := range state.each {
		switch {
		case b == err && a == err:
			result |= pairOf(err, err)
		case b == err:
			result |= pairsOf([]termOutcome{err}, anything)
		case a == err:
			result |= pairsOf(anything, []termOutcome{err})
		case b == a:
			result |= same
		default:
			result |= differs
		}
	}
	return result
}
