package pdp

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"

	"policy-service/evaluation"
)

// TestPropertyIndexChangesNothing holds the promise of the index: a decision, the
// policies that determined it and those that erred are the same with it, without
// it, and in the mouth of cedar-go alone.
func TestPropertyIndexChangesNothing(t *testing.T) {
	seen := tally{}
	eachSeed(t, 120, func(t *testing.T, g *generator) {
		w := g.world(24)
		b := w.load(t)
		for range 30 {
			a := g.question(w)
			if diff := indexDiffers(t, b, w, a, seen); diff != "" {
				w = w.smaller(func(b *Bundle, w world) bool { return indexDiffers(t, b, w, a, tally{}) != "" })
				t.Fatalf("seed %d: %s\n%s%s", g.seed, indexDiffers(t, w.load(t), w, a, tally{}), w, a)
			}
		}
	})
	seen.atLeast(t, "allow", 10)
	seen.atLeast(t, "deny", 10)
	seen.atLeast(t, "determined", 30)
	seen.atLeast(t, "errors", 30)
	seen.atLeast(t, "unusable", 10)
	seen.atLeast(t, "policy_error", 1)
	seen.atLeast(t, "principal = resource", 5)
	seen.atLeast(t, "unknown entity", 30)
	seen.atLeast(t, "parents from the request", 10)
	seen.atLeast(t, "many ancestors", 5)
	seen.atLeast(t, "narrowed", 95)
}

// tally counts what a corpus holds: a property of nothing holds always.
type tally map[string]int

func (n tally) count(what string, is bool) {
	if is {
		n[what]++
	}
	n["of "+what]++
}

func (n tally) atLeast(t *testing.T, what string, percent int) {
	t.Helper()
	t.Logf("%s: %d of %d", what, n[what], n["of "+what])
	if !oneSeed() && !t.Failed() && 100*n[what] < percent*n["of "+what] {
		t.Errorf("%d of %d cases are %s, fewer than %d%%: the generator does not test what it should", n[what], n["of "+what], what, percent)
	}
}

// indexDiffers says how the three ways to decide differ, and counts what was seen.
func indexDiffers(t *testing.T, b *Bundle, w world, a asked, seen tally) string {
	call := a.call(t)
	with, err1 := decideBy(context.Background(), b, call)
	without, err2 := decideBy(context.Background(), b.WithoutIndex(), call)
	if err1 != nil || err2 != nil {
		return whereDiffers("errors", fmt.Sprint(err1), fmt.Sprint(err2))
	}
	b.countShapes(call, seen)
	seen.count("allow", with.Allow)
	seen.count("deny", !with.Allow)
	seen.count("determined", len(with.Determining) > 0)
	seen.count("errors", len(with.Errors) > 0)
	seen.count("policy_error", with.Reason == evaluation.ErroredPolicy)
	seen.count("unusable", slices.ContainsFunc(with.Errors, func(e evaluation.PolicyError) bool { return e.Kind == evaluation.UnusableValue }))
	if diff := whereDiffers("with and without the index", outcome(with), outcome(without)); diff != "" {
		return diff
	}
	return plainDiffers(b, w, call, with)
}

// countShapes counts the forms of questions that an index could mishandle.
func (b *Bundle) countShapes(call Call, seen tally) {
	v := b.viewOf(call)
	q, _ := questionOf(b, v, call)
	if q.reason != "" {
		return
	}
	ls, o := q.lineages(), q.entities
	given, counted := policiesFor(v, q, new(scratch))
	seen.count("principal = resource", o.principal.UID == o.resource.UID)
	seen.count("unknown entity", !o.origin[0].known || !o.origin[1].known)
	seen.count("parents from the request", !o.principal.Parents.Equal(o.origin[0].stored.Parents) || !o.resource.Parents.Equal(o.origin[1].stored.Parents))
	seen.count("many ancestors", ls[principalVar].set != nil || ls[resourceVar].set != nil)
	seen.count("narrowed", len(given)+len(counted) < len(v.policies))
}

func whereDiffers(what, a, b string) string {
	if a == b {
		return ""
	}
	return fmt.Sprintf("%s:\n  %s\n  %s", what, a, b)
}

// outcome is the part of a decision that the index could change.
func outcome(d evaluation.Decision) string {
	return fmt.Sprintf("allow=%t reason=%q determining=%q errors=%v", d.Allow, d.Reason, d.Determining, d.Errors)
}

// plainDiffers compares a decision with one made of nothing but cedar-go and the
// rules of SEMANTICS.md 2 and 3.3, written down a second time.
func plainDiffers(b *Bundle, w world, call Call, got evaluation.Decision) string {
	v := b.viewOf(call)
	q, err := questionOf(b, v, call)
	if err != nil || q.reason != "" {
		return whereDiffers("a question that cannot be put", fmt.Sprint(err, q.reason), fmt.Sprint(nil, got.Reason))
	}
	var counted []*policy
	given := cedar.PolicyMap{}
	for _, p := range v.policies {
		considered := headHolds(w, p.id, q)
		ls := q.lineages()
		if ls.considers(p) != considered {
			return fmt.Sprintf("%s is considered: %t, its head holds: %t", p.id, !considered, considered)
		}
		if considered && countsAsErrored(p, q.unusable) {
			counted = append(counted, p)
		} else {
			given[p.cedarID] = p.cedar
		}
	}
	result, diagnostic := cedar.Authorize(given, q.flat(), q.cedar())
	return whereDiffers("here and in cedar-go", outcome(got), outcome(b.settle(v, q, counted, result, diagnostic)))
}

func (b *Bundle) viewOf(call Call) *view { return b.views[call.Request.Tenant] }

func (q *question) cedar() cedar.Request {
	return cedar.Request{Principal: q.uids[principalVar], Action: q.uids[actionVar], Resource: q.uids[resourceVar], Context: q.context}
}

func (q *question) lineages() *lineages {
	var ls lineages
	for n, uid := range q.uids {
		ls[n] = lineageOf(uid, q.entities)
	}
	return &ls
}

// flat copies the entities of a question into a map, cedar-go's own getter.
func (q *question) flat() types.EntityMap {
	all := types.EntityMap{}
	for s := q.entities.store; s != nil; s = s.root {
		maps.Copy(all, s.entities)
	}
	all[q.entities.principal.UID] = q.entities.principal
	all[q.entities.resource.UID] = q.entities.resource
	return all
}

// headHolds asks cedar-go whether a policy is considered.
func headHolds(w world, id string, q *question) bool {
	all := slices.Concat(w.policies, w.tenant)
	n := slices.IndexFunc(all, func(p policyText) bool { return p.id == id })
	result, _ := cedar.Authorize(cedar.PolicyMap{"": all[n].head}, q.entities, q.cedar())
	return bool(result)
}

// settle turns cedar-go's answer into a decision.
func (b *Bundle) settle(v *view, q *question, counted []*policy, result cedar.Decision, diagnostic cedar.Diagnostic) evaluation.Decision {
	d := evaluation.Decision{Allow: bool(result)}
	for _, r := range diagnostic.Reasons {
		d.Determining = append(d.Determining, string(r.PolicyID))
	}
	slices.Sort(d.Determining)
	denies := false
	for _, p := range counted {
		d.Errors = append(d.Errors, evaluation.PolicyError{Policy: p.id, Position: p.position, Kind: evaluation.UnusableValue})
		denies = denies || p.forbids()
	}
	for _, e := range diagnostic.Errors {
		p := v.byID[string(e.PolicyID)]
		kind := errorKind(e.Message)
		if reads(p, q.unusable) {
			kind = evaluation.UnusableValue
		}
		d.Errors = append(d.Errors, evaluation.PolicyError{Policy: p.id, Position: p.position, Kind: kind})
		denies = denies || p.forbids() && (!b.config.ignoreForbidErrors || kind == evaluation.UnusableValue)
	}
	slices.SortFunc(d.Errors, func(a, b evaluation.PolicyError) int { return strings.Compare(a.Policy, b.Policy) })
	if d.Allow && denies {
		d.Allow, d.Determining, d.Reason = false, nil, evaluation.ErroredPolicy
	}
	return d
}
