package engine

import (
	"slices"

	"github.com/cedar-policy/cedar-go"

	"policy-service/evaluation"
	"policy-service/pdp/internal/bundle"
)

// verdicts are verdicts that are possible, if a policy reads what is not known. They are in order, each once.
type verdicts []evaluation.Verdict

func (v verdicts) may(one evaluation.Verdict) bool { return slices.Contains(v, one) }

// condition is a clause of a policy, or a part of one, with what is found out about it once.
type condition struct {
	unless bool // the clause holds if the body does not
	body   bundle.Conjunct
	term   *bundle.Term
	// parts are the operands of a negation, of a conjunction or disjunction and of an if. Only a condition without parts
	// has uses: each use is in one condition, or a long chain of || would be gone through once for each of its links.
	parts []*condition
	uses  []use
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
	default:
		c.uses = usesOf(term)
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

// verdicts are the verdicts that the known parts of a policy leave open. Its clauses are evaluated
// in order, up to the first that does not hold. enough, if it is set, ends that early.
func (e *explainer) verdicts(clauses []*condition, enough func(verdicts) bool) (all verdicts) {
	all = satisfied
	for _, c := range clauses {
		if !all.may(evaluation.Satisfied) || enough != nil && enough(all) {
			return all
		}
		all = all.then(evaluation.Satisfied, e.clause(c))
	}
	return all
}

// clause is what a clause of a policy can come to.
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
	c.open = open || len(c.parts) == 0 && e.open(c)
	return c.open
}

// not swaps what is true and what is false.
func (v verdicts) not() (all verdicts) {
	for _, one := range v {
		switch one {
		case evaluation.Satisfied:
			one = evaluation.NotSatisfied
		case evaluation.NotSatisfied:
			one = evaluation.Satisfied
		}
		all = append(all, one)
	}
	return all
}

// then are the verdicts if what comes next is evaluated only after this one of them.
func (v verdicts) then(after evaluation.Verdict, next verdicts) (all verdicts) {
	for _, one := range v {
		if one == after {
			all = append(all, next...)
		} else {
			all = append(all, one)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// branch are the verdicts of an if with this one test.
func (v verdicts) branch(then, otherwise verdicts) verdicts {
	switch v[0] {
	case evaluation.Satisfied:
		return then
	case evaluation.NotSatisfied:
		return otherwise
	}
	return v
}

// outcomes are what the body of a condition can come to. cedar-go evaluates each part of it that is known.
func (e *explainer) outcomes(c *condition) verdicts {
	if !c.open {
		if c.alone == nil {
			c.alone = c.body.Policy()
		}
		return verdicts{e.holds(c.alone)}
	}
	switch bundle.OpOf(c.body.Body) {
	case bundle.OpNot:
		return e.outcomes(c.parts[0]).not()
	case bundle.OpAnd:
		return e.outcomes(c.parts[0]).then(evaluation.Satisfied, e.outcomes(c.parts[1]))
	case bundle.OpOr:
		return e.outcomes(c.parts[0]).then(evaluation.NotSatisfied, e.outcomes(c.parts[1]))
	case bundle.OpIf:
		var all verdicts
		then, otherwise := e.outcomes(c.parts[1]), e.outcomes(c.parts[2]) // once: each may be an if itself
		for _, test := range e.outcomes(c.parts[0]) {
			all = append(all, verdicts{test}.branch(then, otherwise)...)
		}
		slices.Sort(all)
		return slices.Compact(all)
	}
	return anything
}

// Verdicts that are often possible. Nothing changes them.
var (
	anything     = verdicts{evaluation.Errored, evaluation.NotSatisfied, evaluation.Satisfied}
	satisfied    = verdicts{evaluation.Satisfied}
	notSatisfied = verdicts{evaluation.NotSatisfied}
	maySatisfy   = verdicts{evaluation.NotSatisfied, evaluation.Satisfied}
)
