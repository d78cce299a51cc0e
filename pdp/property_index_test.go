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
	"policy-service/pdp/internal/bundle"
	"policy-service/pdp/internal/engine"
)

// TestPropertyIndexChangesNothing holds the promise of the index: a decision, the
// policies that determined it and those that erred are the same with it, without
// it, and in the mouth of cedar-go alone.
func TestPropertyIndexChangesNothing(t *testing.T) {
	t.Parallel()
	seen := tally{}
	eachSeed(t, 120, func(t *testing.T, g *generator) {
		g.prefixed = g.seed%2 == 1
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
	seen.atLeast(t, "a prefix that holds", 10)
	seen.atLeast(t, "a prefix that does not", 10)
}

// TestPropertyParentsAreThoseOfTheEntity: what a store says of parents alone is what it says of the entity, known or not.
func TestPropertyParentsAreThoseOfTheEntity(t *testing.T) {
	t.Parallel()
	seen := tally{}
	eachSeed(t, 60, func(t *testing.T, g *generator) {
		for _, v := range g.world(24).load(t).Views {
			for typ, all := range ids {
				for _, id := range all {
					uid := types.NewEntityUID(types.EntityType(typ), types.String(id))
					e, known := v.Store.Get(uid)
					if got := v.Store.Parents(uid); !got.Equal(e.Parents) {
						t.Errorf("seed %d: %s has the parents %v, want %v", g.seed, uid, got, e.Parents)
					}
					seen.count("known", known)
					seen.count("below others", e.Parents.Len() > 0)
				}
			}
		}
	})
	seen.atLeast(t, "known", 10)
	seen.atLeast(t, "below others", 5)
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
	if testing.Short() && n[what] > 0 {
		return // of a tenth of the cases each kind is there, and shares are by chance
	}
	if !fewSeeds() && !t.Failed() && 100*n[what] < percent*n["of "+what] {
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
	countShapes(b, call, seen)
	seen.count("allow", with.Allow)
	seen.count("deny", !with.Allow)
	seen.count("determined", len(with.Determining) > 0)
	seen.count("errors", len(with.Errors) > 0)
	seen.count("policy_error", with.Reason == evaluation.ErroredPolicy)
	seen.count("unusable", slices.ContainsFunc(with.Errors, func(e evaluation.PolicyError) bool { return e.Kind == evaluation.UnusableValue }))
	if diff := whereDiffers("with and without the index", outcome(with), outcome(without)); diff != "" {
		return diff
	}
	if diff := whereDiffers("explanations with and without the index", explanationOf(t, b, call), explanationOf(t, b.WithoutIndex(), call)); diff != "" {
		return diff
	}
	return plainDiffers(b, w, call, with)
}

func explanationOf(t *testing.T, b *Bundle, call Call) string {
	t.Helper()
	call.Explain = true
	d, err := decideBy(context.Background(), b, call)
	must(t, err)
	return jsonText(d.Explain)
}

// countShapes counts the forms of questions that an index could mishandle.
func countShapes(b *Bundle, call Call, seen tally) {
	v := viewOf(b, call)
	q, _ := questionOf(b, v, call)
	if q.Reason != "" {
		return
	}
	ls, o := lineagesOf(q), q.Entities
	given, counted := engine.PoliciesFor(v, q, new(bundle.Scratch))
	seen.count("principal = resource", o.Principal.UID == o.Resource.UID)
	seen.count("unknown entity", !o.Origin[0].Known || !o.Origin[1].Known)
	seen.count("parents from the request", !o.Principal.Parents.Equal(o.Origin[0].Stored.Parents) || !o.Resource.Parents.Equal(o.Origin[1].Stored.Parents))
	seen.count("many ancestors", ls[bundle.PrincipalVar].Set != nil || ls[bundle.ResourceVar].Set != nil)
	seen.count("narrowed", len(given)+len(counted) < len(v.Policies))
	for _, p := range v.Policies {
		for _, test := range p.Facts.Leading {
			if test.Prefix != "" {
				holds := ls[test.Of].Holds(&test)
				seen.count("a prefix that holds", holds)
				seen.count("a prefix that does not", !holds)
			}
		}
	}
}

func whereDiffers(what, a, b string) string {
	if a == b {
		return ""
	}
	return fmt.Sprintf("%s:\n  %s\n  %s", what, a, b)
}

// outcome is the part of a decision that the index could change.
func outcome(d evaluation.Decision) string {
	return fmt.Sprintf("allow=%t possible=%d reason=%q determining=%q errors=%v", d.Allow, d.Possible, d.Reason, d.Determining, d.Errors)
}

// plainDiffers compares a decision with one made of nothing but cedar-go and the
// rules of SEMANTICS.md 2 and 3.3, written down a second time.
func plainDiffers(b *Bundle, w world, call Call, got evaluation.Decision) string {
	v := viewOf(b, call)
	q, err := questionOf(b, v, call)
	if err != nil || q.Reason != "" {
		return whereDiffers("a question that cannot be put", fmt.Sprint(err, q.Reason), fmt.Sprint(nil, got.Reason))
	}
	var counted []*bundle.Policy
	given := cedar.PolicyMap{}
	for _, p := range v.Policies {
		considered := headHolds(w, p.Id, q)
		ls := lineagesOf(q)
		if ls.Considers(p) != considered {
			return fmt.Sprintf("%s is considered: %t, its head holds: %t", p.Id, !considered, considered)
		}
		if considered && engine.CountsAsErrored(p, &q.Unusable) {
			counted = append(counted, p)
		} else {
			given[p.CedarID] = p.Cedar
		}
	}
	result, diagnostic := cedar.Authorize(given, flatOf(q), requestOf(q))
	return whereDiffers("here and in cedar-go", outcome(got), outcome(settledBy(b, v, q, counted, result, diagnostic)))
}

func viewOf(b *Bundle, call Call) *bundle.View { return b.Views[call.Request.Tenant] }

func requestOf(q *engine.Question) cedar.Request {
	return cedar.Request{Principal: q.Uids[bundle.PrincipalVar], Action: q.Uids[bundle.ActionVar], Resource: q.Uids[bundle.ResourceVar], Context: q.Context}
}

func lineagesOf(q *engine.Question) *bundle.Lineages {
	var ls bundle.Lineages
	for n, uid := range q.Uids {
		ls[n] = bundle.LineageOf(uid, q.Entities)
	}
	return &ls
}

// flat copies the entities of a question into a map, cedar-go's own getter.
func flatOf(q *engine.Question) types.EntityMap {
	all := types.EntityMap{}
	for s := q.Entities.Store; s != nil; s = s.Root {
		maps.Copy(all, s.Entities)
	}
	all[q.Entities.Principal.UID] = q.Entities.Principal
	all[q.Entities.Resource.UID] = q.Entities.Resource
	return all
}

// headHolds asks cedar-go whether a policy is considered.
func headHolds(w world, id string, q *engine.Question) bool {
	all := slices.Concat(w.policies, w.tenant)
	n := slices.IndexFunc(all, func(p policyText) bool { return p.id == id })
	result, _ := cedar.Authorize(cedar.PolicyMap{"": all[n].head}, q.Entities, requestOf(q))
	return bool(result)
}

// settle turns cedar-go's answer into a decision.
func settledBy(b *Bundle, v *bundle.View, q *engine.Question, counted []*bundle.Policy, result cedar.Decision, diagnostic cedar.Diagnostic) evaluation.Decision {
	d := evaluation.Decision{Allow: bool(result)}
	for _, r := range diagnostic.Reasons {
		d.Determining = append(d.Determining, string(r.PolicyID))
	}
	slices.Sort(d.Determining)
	denies := false
	for _, p := range counted {
		d.Errors = append(d.Errors, evaluation.PolicyError{Policy: p.Id, Position: p.Position, Kind: evaluation.UnusableValue})
		denies = denies || p.Forbids()
	}
	for _, e := range diagnostic.Errors {
		p := v.ByID[string(e.PolicyID)]
		kind := engine.ErrorKind(e.Message)
		if engine.Reads(p, &q.Unusable) {
			kind = evaluation.UnusableValue
		}
		d.Errors = append(d.Errors, evaluation.PolicyError{Policy: p.Id, Position: p.Position, Kind: kind})
		denies = denies || p.Forbids() && (!b.Config.IgnoreForbidErrors || kind == evaluation.UnusableValue)
	}
	slices.SortFunc(d.Errors, func(a, b evaluation.PolicyError) int { return strings.Compare(a.Policy, b.Policy) })
	if d.Allow && denies {
		d.Allow, d.Determining, d.Reason = false, nil, evaluation.ErroredPolicy
	}
	return d
}
