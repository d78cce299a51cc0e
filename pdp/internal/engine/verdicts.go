package engine

import (
	"slices"

	"policy-service/evaluation"
	"policy-service/pdp/internal/bundle"
)

// verdicts are verdicts that are possible, if a policy reads what is not known. They are in order, each once.
type verdicts []evaluation.Verdict

func (v verdicts) may(one evaluation.Verdict) bool { return slices.Contains(v, one) }

// verdicts are the verdicts that the known parts of a policy leave open. Its clauses are evaluated
// in order, up to the first that does not hold.
func (e *explainer) verdicts(p *bundle.Policy) (all verdicts) {
	all = verdicts{evaluation.Satisfied}
	for _, c := range p.Facts.Conjuncts {
		if !all.may(evaluation.Satisfied) {
			return all
		}
		all = all.then(evaluation.Satisfied, e.clause(c))
	}
	return all
}

// clause is what a clause of a policy can come to.
func (e *explainer) clause(c bundle.Conjunct) verdicts {
	of := e.outcomes(bundle.Conjunct{Body: c.Body})
	if c.Unless {
		return of.not()
	}
	return of
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

// outcomes are what a condition can come to. cedar-go evaluates each part of it that is known.
func (e *explainer) outcomes(c bundle.Conjunct) verdicts {
	if e.open == nil || !e.open(c.Term()) {
		return verdicts{e.holds(c.Policy())}
	}
	parts := bundle.Children(c.Body)
	part := func(n int) verdicts { return e.outcomes(bundle.Conjunct{Body: parts[n]}) }
	switch bundle.OpOf(c.Body) {
	case bundle.OpNot:
		return part(0).not()
	case bundle.OpAnd:
		return part(0).then(evaluation.Satisfied, part(1))
	case bundle.OpOr:
		return part(0).then(evaluation.NotSatisfied, part(1))
	case bundle.OpIf:
		var all verdicts
		for _, test := range part(0) {
			all = append(all, verdicts{test}.branch(part(1), part(2))...)
		}
		slices.Sort(all)
		return slices.Compact(all)
	}
	return verdicts{evaluation.Satisfied, evaluation.NotSatisfied, evaluation.Errored}
}
