package pdp

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cedar-policy/cedar-go"

	"policy-service/evaluation"
	"policy-service/pdp/internal/bundle"
	"policy-service/pdp/internal/engine"
)

// TestPropertyExplain holds explanations to the decisions they explain: asked
// for or not, the decision is the same, and the two cannot disagree.
func TestPropertyExplain(t *testing.T) {
	t.Parallel()
	seen := tally{}
	eachSeed(t, 200, func(t *testing.T, g *generator) {
		g.prefixed = g.seed%3 == 1
		w := g.world(10)
		ask := func() asked { return g.question(w) }
		if g.seed%2 == 1 {
			w, ask = g.wordy(), func() asked { a, _ := g.unusable(); return a }
		}
		b := w.load(t)
		for range 12 {
			a := ask()
			if diff := explainDiffers(t, b, a, seen); diff != "" {
				w = w.smaller(func(b *Bundle, _ world) bool { return explainDiffers(t, b, a, tally{}) != "" })
				t.Fatalf("seed %d: %s\n%s%s", g.seed, explainDiffers(t, w.load(t), a, tally{}), w, a)
			}
		}
	})
	seen.atLeast(t, "allow", 10)
	seen.atLeast(t, "default deny with near misses", 10)
	seen.atLeast(t, "errors", 20)
	seen.atLeast(t, "policy_error", 2)
}

// explainDiffers says where a decision and its explanation disagree.
func explainDiffers(t *testing.T, b *Bundle, a asked, seen tally) string {
	call := a.call(t)
	d, err1 := decideBy(context.Background(), b, call)
	call.Explain, call.Clauses = true, true
	e, err2 := decideBy(context.Background(), b, call)
	if err1 != nil || err2 != nil {
		return whereDiffers("errors", fmt.Sprint(err1), fmt.Sprint(err2))
	}
	v := viewOf(b, call)
	q, _ := questionOf(b, v, call)
	x := explained{v: v, q: q, r: call.Request, d: d, policies: e.Explain.Policies}
	seen.count("allow", d.Allow)
	seen.count("errors", len(d.Errors) > 0)
	seen.count("policy_error", d.Reason == evaluation.ErroredPolicy)
	seen.count("default deny with near misses", len(x.policies) > 0 && x.policies[0].Failed != "")
	for _, differs := range []string{
		whereDiffers("with and without explanation", outcome(d), outcome(e)),
		x.verdictsDiffer(), x.clausesDiffer(), x.consideredDiffer(), x.nearMissesDiffer(), x.sourcesDiffer(),
	} {
		if differs != "" {
			return differs
		}
	}
	return ""
}

// explained is a decision with its explanation.
type explained struct {
	v        *bundle.View
	q        *engine.Question
	r        evaluation.Request
	d        evaluation.Decision
	policies []evaluation.PolicyExplanation
}

// with returns the ids of the policies that have an effect and a verdict.
func (x *explained) with(effect string, verdict evaluation.Verdict) []string {
	var ids []string
	for _, p := range x.policies {
		if p.Verdict == verdict && (effect == "" || p.Effect == effect) {
			ids = append(ids, p.ID)
		}
	}
	slices.Sort(ids)
	return ids
}

// verdictsDiffer compares the verdicts with what determined the decision, and
// with what erred.
func (x *explained) verdictsDiffer() string {
	permits, forbids, errs := x.with("permit", evaluation.Satisfied), x.with("forbid", evaluation.Satisfied), x.with("", evaluation.Errored)
	var errors []string
	for _, e := range x.d.Errors {
		errors = append(errors, e.Policy)
	}
	determining := forbids
	switch {
	case x.d.Allow:
		determining = permits
	case x.d.Reason == evaluation.ErroredPolicy: // an allow without the errors
		determining = nil
	}
	diff := whereDiffers("verdicts and errors", fmt.Sprint(errs), fmt.Sprint(errors)) +
		whereDiffers("verdicts and determining policies", fmt.Sprint(determining), fmt.Sprint(x.d.Determining))
	if (x.d.Allow || x.d.Reason == evaluation.ErroredPolicy) && (len(forbids) > 0 || len(permits) == 0) {
		diff += fmt.Sprintf("satisfied permits %q and forbids %q make no %s", permits, forbids, outcome(x.d))
	}
	return diff
}

// clausesDiffer compares the verdict of each policy with the first of its clauses that does not hold.
func (x *explained) clausesDiffer() string {
	of := map[evaluation.ClauseResult]evaluation.Verdict{
		evaluation.Held: evaluation.Satisfied, evaluation.ClauseFailed: evaluation.NotSatisfied, evaluation.ClauseErred: evaluation.Errored,
		evaluation.NotReached: evaluation.Errored, // it counts as errored, and is not asked
	}
	for _, p := range x.policies {
		first := evaluation.Held
		for _, c := range p.Clauses {
			if first == evaluation.Held {
				first = c.Result
			} else if c.Result != evaluation.NotReached {
				return fmt.Sprintf("%s: clauses after the first that does not hold are reached: %v", p.ID, p.Clauses)
			}
		}
		if of[first] != p.Verdict {
			return fmt.Sprintf("%s is %s, with the clauses %v", p.ID, p.Verdict, p.Clauses)
		}
	}
	return ""
}

// consideredDiffer compares the explained policies with those considered: all
// of them are there once, and nothing but near misses besides.
func (x *explained) consideredDiffer() string {
	var want, got []string
	for _, p := range x.v.Policies {
		if x.q.Reason == "" && lineagesOf(x.q).Considers(p) {
			want = append(want, p.Id)
		}
	}
	for _, p := range x.policies {
		if p.Failed == "" || slices.Contains(want, p.ID) {
			got = append(got, p.ID)
		}
	}
	slices.Sort(got)
	return whereDiffers("considered and explained", fmt.Sprint(want), fmt.Sprint(got))
}

// nearMissesDiffer asks cedar-go about the clauses that are said to have failed,
// written out as the reader of the explanation sees them.
func (x *explained) nearMissesDiffer() string {
	near := slices.IndexFunc(x.policies, func(p evaluation.PolicyExplanation) bool { return p.Failed == "" })
	if near < 0 {
		near = len(x.policies)
	}
	isDefault := x.q.Reason == "" && !x.d.Allow && x.d.Reason == "" && len(x.d.Determining) == 0
	if near > engine.Nearest || !isDefault && near > 0 || slices.ContainsFunc(x.policies[near:], func(p evaluation.PolicyExplanation) bool { return p.Failed != "" }) {
		return fmt.Sprintf("%d near misses of a decision whose outcome is %s", near, outcome(x.d))
	}
	if isDefault && near == 0 && slices.ContainsFunc(x.policies, func(p evaluation.PolicyExplanation) bool {
		return p.Effect == "permit" && p.Verdict == evaluation.NotSatisfied
	}) {
		return "a permit was not satisfied, and it is not said why"
	}
	for _, p := range x.policies[:near] {
		if of := x.v.ByID[p.ID]; of.Forbids() || !lineagesOf(x.q).Hold(of.Facts.Scope) || p.Verdict == evaluation.Satisfied {
			return p.ID + " is no near miss"
		}
		if x.satisfied(p.Failed) {
			return fmt.Sprintf("%s is said to have failed for %q, which holds", p.ID, p.Failed)
		}
		for _, c := range x.v.ByID[p.ID].Facts.Conjuncts {
			if c.Text() == p.Failed {
				break
			}
			if !x.satisfied(c.Text()) {
				return fmt.Sprintf("%s is said to have failed for %q, and %q before it failed already", p.ID, p.Failed, c.Text())
			}
		}
	}
	return ""
}

// satisfied asks cedar-go whether a condition holds.
func (x *explained) satisfied(condition string) bool {
	result, _ := cedar.Authorize(cedar.PolicyMap{"": parsed("permit (principal, action, resource) " + condition + ";")}, flatOf(x.q), requestOf(x.q))
	return result == cedar.Allow
}

// sourcesDiffer asks cedar-go whether the attributes are there that are said to
// have come from somewhere, and the request whether they came from there.
func (x *explained) sourcesDiffer() string {
	for _, p := range x.policies {
		for _, read := range p.Attributes {
			root, names, dotted := strings.Cut(read.Path, ".")
			if !dotted || strings.Contains(names, "[") {
				continue // has takes no chain with quoted names
			}
			name, _, _ := strings.Cut(names, ".")
			there, sent := x.satisfied("when { "+root+" has "+names+" }"), x.sends(root, name)
			if !possible(read.Source, there, sent, root+"."+name == "context.pdp") {
				return fmt.Sprintf("%s: the source of %s is %s; it is there: %t, it was sent: %t", p.ID, read.Path, read.Source, there, sent)
			}
		}
	}
	return ""
}

// possible reports whether a value can have come from a source.
func possible(source evaluation.Source, there, sent, ofPDP bool) bool {
	switch source {
	case evaluation.Sent:
		return there && sent
	case evaluation.Stored:
		return there && !sent
	case evaluation.ByPDP:
		return there && ofPDP
	case evaluation.PassedOver: // what stands in its place may go less deep
		return sent
	case evaluation.Unusable: // or something in it is
		return sent
	case evaluation.Dropped:
		return !there && sent
	}
	return !there // the member may have been sent, and not go as deep
}

// sends reports whether the request has a member of that name there.
func (x *explained) sends(root, name string) bool {
	objects := map[string][]evaluation.Object{
		"principal": {x.r.Subject.Properties}, "resource": {x.r.Resource.Properties}, "context": {x.r.Context},
	}[root]
	if root != "context" && x.r.Subject.Type == x.r.Resource.Type && x.r.Subject.ID == x.r.Resource.ID {
		objects = []evaluation.Object{x.r.Subject.Properties, x.r.Resource.Properties}
	}
	return root == "context" && name == "action" || slices.ContainsFunc(objects, func(o evaluation.Object) bool { _, ok := o.Get(name); return ok })
}

// TestPropertySameBytes holds that equal questions get equal bytes, also from a
// bundle that was loaded again.
func TestPropertySameBytes(t *testing.T) {
	t.Parallel()
	eachSeed(t, 80, func(t *testing.T, g *generator) {
		o := g.obliged(16)
		first, second := Of(o.load(t), Options{}), Of(o.load(t), Options{})
		for range 12 {
			a, by := g.question(o.world), g.declaration()
			want := answers(t, first, a, by)
			for _, p := range []*PDP{first, second} {
				if got := answers(t, p, a, by); got != want {
					t.Fatalf("seed %d: one question, two answers:\n%s\n%s\n%s%s", g.seed, want, got, o, a)
				}
			}
		}
	})
}

// answers are the bodies that answer a question, in both shapes, explained or not.
func answers(t *testing.T, p *PDP, a asked, by declaration) string {
	var all []string
	for _, call := range []Call{a.by(t, by), a.by(t, by).native()} {
		for _, call.Explain = range []bool{false, true} {
			d, err := p.Evaluate(context.Background(), call)
			body, err2 := call.Request.Shape.Answer(d)
			d.ID = ""
			all = append(all, fmt.Sprint(string(body), err, err2, jsonText(d)))
		}
	}
	return strings.Join(all, "\n")
}
