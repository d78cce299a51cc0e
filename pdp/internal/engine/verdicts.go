package engine

import (
	"slices"

	"github.com/cedar-policy/cedar-go"

	"policy-service/evaluation"
	"policy-service/pdp/internal/bundle"
)

// verdicts are the possible verdicts of a policy that reads an unknown value.
type verdicts uint8

const (
	errored verdicts = 1 << iota
	notSatisfied
	satisfied

	maySatisfy = satisfied | notSatisfied
	anything   = maySatisfy | errored
)

// inOrder are the verdicts, each in the place of its bit.
var inOrder = [...]evaluation.Verdict{evaluation.Errored, evaluation.NotSatisfied, evaluation.Satisfied}

// list are the verdicts in order.
func (v verdicts) list() (all []evaluation.Verdict) {
	for n, one := range inOrder {
		if v.may(1 << n) {
			all = append(all, one)
		}
	}
	return all
}

func (v verdicts) may(one verdicts) bool { return v&one != 0 }

// not swaps true and false.
func (v verdicts) not() verdicts { return v&errored | v&satisfied>>1 | v&notSatisfied<<1 }

// then are the verdicts if the next part is evaluated only after this one of them.
func (v verdicts) then(after, next verdicts) verdicts {
	if v.may(after) {
		v = v&^after | next
	}
	return v
}

// condition is a clause of a policy, or a part of one, with the results that are computed once.
type condition struct {
	unless bool // the clause holds if the body does not
	body   bundle.Conjunct
	term   *bundle.Term
	parts  []*condition // the operands of a negation, of a conjunction or disjunction and of an if
	// alone is the body as a policy, once cedar-go was asked about it.
	alone *cedar.Policy
	open  bool // for the question that was asked last; see [explainer.mark]
}

func conditionOf(c bundle.Conjunct) *condition {
	body := bundle.Conjunct{Body: c.Body}
	made := partOf(body, body.Term())
	made.unless = c.Unless
	return made
}

// partOf is the condition of a body, with the term of it.
func partOf(body bundle.Conjunct, term *bundle.Term) *condition {
	c := &condition{body: body, term: term}
	switch bundle.OpOf(body.Body) {
	case bundle.OpNot, bundle.OpAnd, bundle.OpOr, bundle.OpIf:
		for n, operand := range bundle.Children(body.Body) {
			c.parts = append(c.parts, partOf(bundle.Conjunct{Body: operand}, term.Args[n]))
		}
	}
	return c
}

// conditionsOf are the clauses of a policy, in order of evaluation.
func conditionsOf(p *bundle.Policy) []*condition {
	all := make([]*condition, len(p.Facts.Conjuncts))
	for n, c := range p.Facts.Conjuncts {
		all[n] = conditionOf(c)
	}
	return all
}

// reads reports whether any part of a condition without parts is of this kind.
func (c *condition) reads(open func(*bundle.Term) bool) bool {
	if len(c.parts) == 0 {
		return open(c.term)
	}
	return slices.ContainsFunc(c.parts, func(part *condition) bool { return part.reads(open) })
}

// verdicts are the verdicts that the known parts of a policy leave open. Its clauses are evaluated
// in order, up to the first that does not hold. enough, if it is set, ends that early.
func (e *explainer) verdicts(clauses []*condition, enough func(verdicts) bool) (all verdicts) {
	all = satisfied
	for _, c := range clauses {
		if !all.may(satisfied) || enough != nil && enough(all) {
			return all
		}
		all = all.then(satisfied, e.clause(c))
	}
	return all
}

// clause are the possible outcomes of a clause.
func (e *explainer) clause(c *condition) verdicts {
	e.mark(c)
	if c.unless {
		return e.outcomes(c).not()
	}
	return e.outcomes(c)
}

// mark finds out which parts of a condition are open.
func (e *explainer) mark(c *condition) (open bool) {
	for _, part := range c.parts {
		open = e.mark(part) || open
	}
	c.open = open || len(c.parts) == 0 && e.open(c.term)
	return c.open
}

// outcomes are the possible outcomes of the body of a condition. cedar-go evaluates each known part.
func (e *explainer) outcomes(c *condition) verdicts {
	if !c.open {
		if c.alone == nil {
			c.alone = c.body.Policy()
		}
		return 1 << slices.Index(inOrder[:], e.holds(c.alone))
	}
	switch bundle.OpOf(c.body.Body) {
	case bundle.OpNot:
		return e.outcomes(c.parts[0]).not()
	case bundle.OpAnd:
		return e.outcomes(c.parts[0]).then(satisfied, e.outcomes(c.parts[1]))
	case bundle.OpOr:
		return e.outcomes(c.parts[0]).then(notSatisfied, e.outcomes(c.parts[1]))
	case bundle.OpIf:
		test := e.outcomes(c.parts[0])
		all := test & errored
		if test.may(satisfied) {
			all |= e.outcomes(c.parts[1])
		}
		if test.may(notSatisfied) {
			all |= e.outcomes(c.parts[2])
		}
		return all
	}
	return anything
}
