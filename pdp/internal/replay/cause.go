package replay

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/internal/cedartext"
	"policy-service/pdp/internal/decisionlog/recorder"
)

// Cause is a policy that makes answers change, and its part.
type Cause struct {
	Policy string `json:"policy,omitzero"`
	// Obligation is in place of the policy if that is as it was, and the obligation that it names is not.
	Obligation string `json:"obligation,omitzero"`
	Position   string `json:"position"`
	// Change is that of the policy; it is empty if the policy is as it was, and entities, the schema or bundle.yaml are not.
	Change string `json:"change,omitzero"`
	Does   Does   `json:"does"`
	// Clause is the first clause of a permit that does not hold any more.
	Clause string `json:"clause,omitzero"`
}

// Does is the part of a policy.
type Does string

// The parts that a policy can have.
const (
	Permits        Does = "permits"
	Forbids        Does = "forbids"
	PermitsNoMore  Does = "permits no more"
	ForbidsNoMore  Does = "forbids no more"
	HasErrors      Does = "has an error"
	ObligesNow     Does = "obliges otherwise"
	mostCauses          = 5
	mostCausedOnce      = 200 // groups whose causes are looked for
)

// Causes finds for each group which policies make the difference, by its oldest example, and for lost votes which policies refuse them.
func (c *Compared) Causes(ctx context.Context, base, candidate *Side, s Structure, limits evaluation.Limits) error {
	changes := s.edits()
	for n, g := range c.Groups {
		if n == mostCausedOnce {
			break
		}
		f := finder{g: g, base: base, candidate: candidate, changes: changes, tenant: g.example.Recorded.Tenant}
		call, err := recorder.CallOf(g.example.Recorded, candidate.Bundle, limits)
		if err == nil { // else there is nothing to explain it by
			f.explain(ctx, call)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		g.Cause = f.find()
	}
	for n, l := range c.Votes.By {
		if n == mostCausedOnce {
			break
		}
		l.cause(base, candidate, changes)
	}
	return nil
}

// edits are the policies whose meaning is not as it was.
func (s *Structure) edits() map[policyKey]PolicyChange {
	changes := map[policyKey]PolicyChange{}
	for _, one := range s.Policies {
		if one.Change == Added || one.Change == Removed || one.Change == Edited {
			changes[policyKey{one.Tenant, one.ID}] = one
		}
	}
	return changes
}

// finder finds the causes of one group.
type finder struct {
	g               *Group
	base, candidate *Side
	changes         map[policyKey]PolicyChange
	tenant          string
	now             evaluation.Explanation // of the candidate, for the example
}

// explain has the candidate say how it came to the answer to the example.
func (f *finder) explain(ctx context.Context, call pdp.Call) {
	call.Explain, call.Clauses = true, true
	d, err := pdp.Of(f.candidate.Bundle, pdp.Options{}).Evaluate(ctx, call)
	if err == nil && d.Explain != nil {
		f.now = *d.Explain
	}
}

// find says which policies make the difference. The first rule that fits counts.
func (f *finder) find() []Cause {
	was, is := f.g.From, f.g.To
	switch {
	case !allows(is.Answer) && allows(was.Answer) && len(is.Determining) > 0:
		return f.all(is.Determining, f.candidate, now)
	case allows(is.Answer) && !allows(was.Answer):
		if permits := without(is.Determining, slices.Concat(was.Determining, was.Overruled)); len(permits) > 0 {
			return f.all(permits, f.candidate, now)
		}
		if len(was.Determining) > 0 {
			return f.all(was.Determining, f.base, noMore)
		}
	case !allows(is.Answer) && allows(was.Answer) && is.Reason == evaluation.ErroredPolicy:
		var erred []string
		for _, one := range f.g.example.Is.Errors {
			erred = append(erred, one.Policy)
		}
		return f.all(erred, f.candidate, func(string) Does { return HasErrors })
	case !allows(is.Answer) && allows(was.Answer) && is.Reason == "":
		return f.all(was.Determining, f.base, noMore)
	}
	// The same policies have a part in both, and come with other obligations or another reason.
	all := append(f.all(without(is.Determining, was.Determining), f.candidate, now), f.all(without(was.Determining, is.Determining), f.base, noMore)...)
	for _, id := range slices.Concat(is.Determining, is.Overruled) {
		if change, has := f.changeOf(id); has && len(all) < mostCauses && !slices.ContainsFunc(all, func(c Cause) bool { return c.Policy == id }) {
			all = append(all, Cause{Policy: id, Position: change.Position, Change: change.Change, Does: ObligesNow})
		}
	}
	if len(all) == 0 {
		all = f.obligations()
	}
	return all
}

// obligations are those that are not as they were.
func (f *finder) obligations() (all []Cause) {
	was := f.g.example.Was.Obligations
	for _, one := range f.g.example.Is.Obligations {
		n := slices.IndexFunc(was, func(o Obligation) bool { return o.ID == one.ID })
		if len(all) < mostCauses && (n < 0 || string(was[n].Properties) != string(one.Properties)) {
			all = append(all, Cause{
				Obligation: one.ID, Position: f.candidate.Bundle.ObligationPosition(f.tenant, one.ID), Change: Edited, Does: ObligesNow,
			})
		}
	}
	return all
}

func (f *finder) changeOf(id string) (PolicyChange, bool) {
	for _, tenant := range []string{f.tenant, evaluation.DefaultTenant} {
		if change, has := f.changes[policyKey{tenant, id}]; has {
			return change, true
		}
	}
	return PolicyChange{}, false
}

// now and noMore are the part of a policy, by its effect.
func now(effect string) Does {
	if effect == "forbid" {
		return Forbids
	}
	return Permits
}

func noMore(effect string) Does {
	if effect == "forbid" {
		return ForbidsNoMore
	}
	return PermitsNoMore
}

// all are causes, those that changed first.
func (f *finder) all(ids []string, of *Side, does func(effect string) Does) (all []Cause) {
	for _, id := range ids {
		var p pdp.PolicyInfo
		if of == nil { // the answer on record is of another bundle: its policies are looked for in the candidate
			of = f.candidate
		}
		p, _ = of.then.Policy(f.tenant, id)
		one := Cause{Policy: id, Position: p.Position, Does: does(p.Effect)}
		if change, has := f.changeOf(id); has {
			one.Change, one.Position = change.Change, change.Position
		}
		if one.Does == PermitsNoMore && one.Change != Removed {
			f.failing(&one)
		}
		all = append(all, one)
	}
	slices.SortStableFunc(all, func(a, b Cause) int {
		switch {
		case a.Change != "" && b.Change == "":
			return -1
		case a.Change == "" && b.Change != "":
			return 1
		}
		return 0
	})
	return all[:min(len(all), mostCauses)]
}

// failing finds the clause of the candidate's policy that does not hold for the example, and where it stands.
func (f *finder) failing(one *Cause) {
	n := slices.IndexFunc(f.now.Policies, func(p evaluation.PolicyExplanation) bool { return p.ID == one.Policy })
	if n < 0 {
		return
	}
	p := f.now.Policies[n]
	one.Position = p.Position
	one.Clause = p.Failed
	for _, clause := range p.Clauses {
		if clause.Result == evaluation.ClauseFailed || clause.Result == evaluation.ClauseErred {
			one.Clause = clause.Text
			break
		}
	}
	if at := positionOf(one.Clause, f.candidate.then.Text(p.Position), p.Position); at != "" {
		one.Position = at
	}
}

// positionOf is where a clause stands in the text of a policy, "" if that is not certain. A clause is written as Cedar writes it, so that
// parentheses may differ.
func positionOf(clause, text, position string) string {
	words := func(text string) (all []cedartext.Token) {
		for token := range cedartext.Tokens(text) {
			if !token.Trivia() && token.Text != "(" && token.Text != ")" {
				all = append(all, token)
			}
		}
		return all
	}
	sought, in := words(strings.TrimSuffix(clause, ";")), words(text)
	same := func(a, b cedartext.Token) bool { return a.Text == b.Text }
	// without the braces: a clause may be one of several that && joins
	if len(sought) > 3 && sought[len(sought)-1].Text == "}" {
		sought = sought[2 : len(sought)-1]
	}
	found := ""
	for n := range in {
		if len(sought) > 0 && n+len(sought) <= len(in) && slices.EqualFunc(in[n:n+len(sought)], sought, same) {
			if found != "" {
				return ""
			}
			found = shifted(position, in[n].Position)
		}
	}
	return found
}

// shifted is a position in a text that begins at the line of another one.
func shifted(base string, at cedartext.Position) string {
	file := fileOf(base)
	var line, column int
	if _, err := fmt.Sscanf(strings.TrimPrefix(base, file+":"), "%d:%d", &line, &column); err != nil {
		return ""
	}
	return fmt.Sprintf("%s:%d:%d", file, line+at.Line-1, at.Column)
}

// without are the ids of one list that are not in another.
func without(ids, other []string) (left []string) {
	for _, id := range ids {
		if !slices.Contains(other, id) {
			left = append(left, id)
		}
	}
	return left
}
