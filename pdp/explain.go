package pdp

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"

	"policy-service/evaluation"
)

// nearest is how many permits a default deny names that came near.
const nearest = 3

// explain says how each considered policy answered, and for a default deny
// which permits came nearest. Every verdict is cedar-go's, asked again with one
// policy, or one clause of it, at a time. It ends with ctx, like the decision.
func explain(ctx context.Context, v *view, q *question, d *evaluation.Decision) (*evaluation.Explanation, error) {
	ls := &q.up
	e := explainer{ctx: ctx, q: q, request: q.request()}
	var near []nearMiss
	if !d.Allow && len(d.Determining) == 0 && d.Reason == "" {
		near = e.nearMisses(v, ls)
	}
	policies := []evaluation.PolicyExplanation{}
	for _, m := range near {
		text := e.policy(m.policy, ls)
		text.Failed = m.policy.facts.conjuncts[m.held].text()
		policies = append(policies, text)
	}
	for _, p := range v.policies {
		if ctx.Err() != nil {
			break
		}
		isNear := slices.ContainsFunc(near, func(m nearMiss) bool { return m.policy == p })
		if !isNear && ls.considers(p) {
			policies = append(policies, e.policy(p, ls))
		}
	}
	return &evaluation.Explanation{Policies: policies, Mismatch: d.Mismatch}, ctx.Err()
}

type explainer struct {
	ctx     context.Context
	q       *question
	request cedar.Request
}

// holds asks cedar-go about one policy.
func (e *explainer) holds(p *cedar.Policy) evaluation.Verdict {
	_, diagnostic := cedar.Authorize(cedar.PolicyMap{"": p}, e.q.entities, e.request)
	switch {
	case len(diagnostic.Errors) > 0:
		return evaluation.Errored
	case len(diagnostic.Reasons) > 0:
		return evaluation.Satisfied
	}
	return evaluation.NotSatisfied
}

func (e *explainer) policy(p *policy, ls *lineages) evaluation.PolicyExplanation {
	verdict := e.holds(p.cedar)
	if ls.considers(p) && countsAsErrored(p, e.q.unusable) { // a near miss need not be considered
		verdict = evaluation.Errored
	}
	return evaluation.PolicyExplanation{ID: p.id, Effect: p.effect(), Verdict: verdict, Position: p.position, Attributes: e.attributes(p)}
}

// nearMiss is a permit whose scope matches, and how many of its clauses held
// before one did not.
type nearMiss struct {
	policy *policy
	held   int
}

func (e *explainer) nearMisses(v *view, ls *lineages) []nearMiss {
	var near []nearMiss
	for _, p := range v.policies {
		if e.ctx.Err() != nil {
			return nil // and nothing of the explanation will be seen
		}
		if p.forbids() || !ls.hold(p.facts.scope) {
			continue
		}
		held := slices.IndexFunc(p.facts.conjuncts, func(c conjunct) bool { return e.holds(c.policy()) != evaluation.Satisfied })
		if held >= 0 {
			near = append(near, nearMiss{p, held})
		}
	}
	slices.SortStableFunc(near, func(a, b nearMiss) int { return cmp.Compare(b.held, a.held) })
	return near[:min(nearest, len(near))]
}

// attributes are what a policy reads and where each value came from.
func (e *explainer) attributes(p *policy) []evaluation.AttributeRead {
	reads := make([]evaluation.AttributeRead, 0, len(p.facts.reads))
	for _, path := range p.facts.reads {
		read := evaluation.AttributeRead{Path: path.String(), Source: e.source(path)}
		if !slices.Contains(reads, read) {
			reads = append(reads, read)
		}
	}
	slices.SortFunc(reads, func(a, b evaluation.AttributeRead) int { return strings.Compare(a.Path, b.Path) })
	return reads
}

func (e *explainer) source(path attributePath) evaluation.Source {
	o := e.q.entities
	switch path.root {
	case "principal":
		return o.origin[0].source(path, o.principal.Attributes, o)
	case "resource":
		return o.origin[1].source(path, o.resource.Attributes, o)
	case "context":
		sent := origin{origins: e.q.contextOrigins}
		if path.names[0] == "pdp" {
			if present(path.names, e.q.context, o) {
				return evaluation.ByPDP
			}
			return evaluation.Missing
		}
		return sent.source(path, e.q.context, o)
	}
	action, _ := o.Get(e.q.uids[actionVar])
	own := origin{stored: action, known: true}
	return own.source(path, action.Attributes, o)
}

// source says where the value at a path came from, which is where the
// attribute that the path begins with came from.
func (o *origin) source(path attributePath, in types.Record, entities types.EntityGetter) evaluation.Source {
	name := path.names[0]
	_, inStore := o.stored.Attributes.Get(types.String(name))
	_, sent := o.sent.Get(name)
	switch {
	case slices.Contains(o.unusable, name):
		return evaluation.Unusable
	case sent && o.passesOver(name):
		return evaluation.PassedOver
	case present(path.names, in, entities):
		if inStore && !sent {
			return evaluation.Stored
		}
		return evaluation.Sent
	case slices.Contains(o.dropped, name):
		return evaluation.Dropped
	}
	return evaluation.Missing
}

// present reports whether there is a value at the path.
func present(names []string, in types.Record, entities types.EntityGetter) bool {
	value, ok := in.Get(types.String(names[0]))
	if !ok || len(names) == 1 {
		return ok
	}
	switch v := value.(type) {
	case types.Record:
		return present(names[1:], v, entities)
	case types.EntityUID:
		entity, ok := entities.Get(v)
		return ok && present(names[1:], entity.Attributes, entities)
	}
	return false
}
