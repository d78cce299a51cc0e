package engine

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"

	"policy-service/evaluation"
	"policy-service/pdp/internal/bundle"
)

// Nearest is how many permits a default deny names that came near.
const Nearest = 3

// explain returns how each considered policy answered, and for a default deny which permits came
// nearest. Every verdict comes from cedar-go, which is asked again with one policy, or one
// clause of it, at a time. Like the decision, explain ends if ctx ends.
func explain(
	ctx context.Context, v *bundle.View, q *Question, d *evaluation.Decision, clauses bool,
) (*evaluation.Explanation, error) {
	ls := &q.Up
	e := explainer{ctx: ctx, q: q, request: q.request()}
	if q.unknown != nil {
		e.open = q.unknown.opens
	}
	var near []nearMiss
	if !d.Allow && len(d.Determining) == 0 && d.Reason == "" {
		near = e.nearMisses(v, ls)
	}
	policies := []evaluation.PolicyExplanation{}
	for _, m := range near {
		text := e.policy(m.policy, ls)
		text.Failed = m.policy.Facts.Conjuncts[m.held].Text()
		if clauses {
			text.Clauses = e.clausesOf(m.policy, ls)
		}
		policies = append(policies, text)
	}
	for _, p := range v.Policies {
		if ctx.Err() != nil {
			break
		}
		isNear := slices.ContainsFunc(near, func(m nearMiss) bool { return m.policy == p })
		if !isNear && (ls.Considers(p) || q.unknown != nil && q.unknown.considered(p).may(satisfied)) {
			one := e.policy(p, ls)
			part := slices.Contains(d.Determining, p.Id) || slices.Contains(d.Overruled, p.Id) || one.Verdict == evaluation.Errored
			if clauses && (part || len(policies) < mostWithClauses) {
				one.Clauses = e.clausesOf(p, ls)
			}
			policies = append(policies, one)
		}
	}
	return &evaluation.Explanation{Policies: policies, Mismatch: d.Mismatch}, ctx.Err()
}

// mostWithClauses is how many policies of an explanation come with their clauses. Those that had a part in the decision do
// in any case.
const mostWithClauses = 20

// clausesOf are the clauses of a policy whose scope holds, in order, up to the first that does not hold, and beyond.
func (e *explainer) clausesOf(p *bundle.Policy, ls *bundle.Lineages) []evaluation.Clause {
	all := make([]evaluation.Clause, len(p.Facts.Conjuncts))
	reached := !ls.Considers(p) || !CountsAsErrored(p, &e.q.Unusable) // such a policy is not asked
	for n, c := range p.Facts.Conjuncts {
		all[n] = evaluation.Clause{Text: c.Text(), Result: evaluation.NotReached}
		if !reached {
			continue
		}
		all[n].Result = e.result(c)
		reached = all[n].Result == evaluation.Held || all[n].Result == evaluation.UnknownResult
	}
	return all
}

// result is the result of one clause by itself.
func (e *explainer) result(c bundle.Conjunct) evaluation.ClauseResult {
	verdict := evaluation.UnknownVerdict
	if e.open == nil {
		verdict = e.holds(c.Policy())
	} else if all := e.clause(conditionOf(c)).list(); len(all) == 1 {
		verdict = all[0]
	}
	switch verdict {
	case evaluation.Satisfied:
		return evaluation.Held
	case evaluation.NotSatisfied:
		return evaluation.ClauseFailed
	case evaluation.Errored:
		return evaluation.ClauseErred
	}
	return evaluation.UnknownResult
}

type explainer struct {
	ctx     context.Context
	q       *Question
	request cedar.Request
	// open reports whether a term reads what is not known. Nil is for a question of which all is known.
	open func(*bundle.Term) bool
}

// errorOf is how a policy errs.
func (e *explainer) errorOf(p *cedar.Policy) evaluation.ErrorKind {
	_, diagnostic := e.ask(p)
	for _, err := range diagnostic.Errors {
		return ErrorKind(err.Message)
	}
	return evaluation.OtherError
}

func (e *explainer) ask(p *cedar.Policy) (cedar.Decision, cedar.Diagnostic) {
	return cedar.Authorize(cedar.PolicyMap{"": p}, e.q.Entities, e.request)
}

// holds asks cedar-go about one policy.
func (e *explainer) holds(p *cedar.Policy) evaluation.Verdict {
	_, diagnostic := e.ask(p)
	switch {
	case len(diagnostic.Errors) > 0:
		return evaluation.Errored
	case len(diagnostic.Reasons) > 0:
		return evaluation.Satisfied
	}
	return evaluation.NotSatisfied
}

func (e *explainer) policy(p *bundle.Policy, ls *bundle.Lineages) evaluation.PolicyExplanation {
	if e.q.unknown != nil {
		return e.unknownPolicy(p)
	}
	verdict := e.holds(p.Cedar)
	if ls.Considers(p) && CountsAsErrored(p, &e.q.Unusable) { // a near miss need not be considered
		verdict = evaluation.Errored
	}
	return evaluation.PolicyExplanation{
		ID:         p.Id,
		Effect:     p.Effect(),
		Verdict:    verdict,
		Position:   p.Position,
		Attributes: e.attributes(p),
	}
}

// unknownPolicy is policy for a question of which not all is known.
func (e *explainer) unknownPolicy(p *bundle.Policy) evaluation.PolicyExplanation {
	out := evaluation.PolicyExplanation{
		ID:         p.Id,
		Effect:     p.Effect(),
		Verdict:    evaluation.UnknownVerdict,
		Position:   p.Position,
		Attributes: e.attributes(p),
	}
	switch all := e.q.unknown.verdicts(p, nil); {
	case len(all.list()) == 1:
		out.Verdict = all.list()[0]
	case !all.may(satisfied): // it does not apply, or it errs
		out.Verdict = evaluation.NotSatisfied
	}
	return out
}

// nearMiss is a permit whose scope matches, and how many of its clauses held
// before one did not.
type nearMiss struct {
	policy *bundle.Policy
	held   int
}

func (e *explainer) nearMisses(v *bundle.View, ls *bundle.Lineages) []nearMiss {
	var near []nearMiss
	for _, p := range v.Policies {
		if e.ctx.Err() != nil {
			return nil // explain ends with the error of ctx
		}
		if p.Forbids() || !ls.Hold(p.Facts.Scope) {
			continue
		}
		fails := func(c bundle.Conjunct) bool {
			if e.open != nil {
				return !e.clause(conditionOf(c)).may(satisfied)
			}
			return e.holds(c.Policy()) != evaluation.Satisfied
		}
		if held := slices.IndexFunc(p.Facts.Conjuncts, fails); held >= 0 {
			near = append(near, nearMiss{p, held})
		}
	}
	slices.SortStableFunc(near, func(a, b nearMiss) int { return cmp.Compare(b.held, a.held) })
	return near[:min(Nearest, len(near))]
}

// attributes returns the attributes that a policy reads, and where each value came from.
func (e *explainer) attributes(p *bundle.Policy) []evaluation.AttributeRead {
	reads := make([]evaluation.AttributeRead, 0, len(p.Facts.Reads))
	for _, path := range p.Facts.Reads {
		read := evaluation.AttributeRead{Path: path.String(), Source: e.source(path)}
		if !slices.Contains(reads, read) {
			reads = append(reads, read)
		}
	}
	slices.SortFunc(reads, func(a, b evaluation.AttributeRead) int { return strings.Compare(a.Path, b.Path) })
	return reads
}

func (e *explainer) source(path bundle.AttributePath) evaluation.Source {
	if u := e.q.unknown; u != nil && u.reads(path, path.Has) {
		return evaluation.UnknownSource
	}
	o := e.q.Entities
	switch path.Root {
	case "principal":
		return o.Origin[0].source(path, o.Principal.Attributes, o)
	case "resource":
		return o.Origin[1].source(path, o.Resource.Attributes, o)
	case "context":
		sent := origin{origins: e.q.contextOrigins}
		if path.Names[0] == "pdp" {
			if _, ok := valueIn(path.Names, e.q.Context, o); !ok {
				return evaluation.Missing
			}
			return evaluation.ByPDP
		}
		if slices.Contains(e.q.contextOrigins.supplied, path.Names[0]) {
			return evaluation.ByPDP
		}
		return sent.source(path, e.q.Context, o)
	}
	action, _ := o.Get(e.q.Uids[bundle.ActionVar])
	own := origin{Stored: action, Known: true}
	return own.source(path, action.Attributes, o)
}

// source returns where the value at a path came from. That is the source of the attribute with
// which the path begins.
func (o *origin) source(path bundle.AttributePath, in types.Record, entities types.EntityGetter) evaluation.Source {
	name := path.Names[0]
	_, inStore := o.Stored.Attributes.Get(types.String(name))
	_, sent := o.sent.Get(name)
	_, present := valueIn(path.Names, in, entities)
	reads, counts := o.unusable.meets(path.Names, path.Has)
	switch {
	case reads || counts:
		return evaluation.Unusable
	case sent && o.passesOver(name):
		return evaluation.PassedOver
	case present:
		if inStore && !sent {
			return evaluation.Stored
		}
		return evaluation.Sent
	case slices.Contains(o.dropped, name):
		return evaluation.Dropped
	}
	return evaluation.Missing
}

// valueIn returns the value at the path.
func valueIn(names []string, in types.Record, entities types.EntityGetter) (types.Value, bool) {
	value, ok := in.Get(types.String(names[0]))
	if !ok || len(names) == 1 {
		return value, ok
	}
	switch v := value.(type) {
	case types.Record:
		return valueIn(names[1:], v, entities)
	case types.EntityUID:
		if entity, ok := entities.Get(v); ok {
			return valueIn(names[1:], entity.Attributes, entities)
		}
	}
	return nil, false
}
