package pdp

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"policy-service/evaluation"
	"policy-service/obligations"
	"policy-service/pdp/pdptest/night"
)

// TestPropertyObligations reckons every answer out again, plainly: from the
// decision of the same policies without obligations, and from what they name.
// That holds SEMANTICS.md 4: what all determining policies name comes, once and
// in order; an allow never carries a type that was not declared; an obligation
// comes from the policies it is said to come from, and those were satisfied.
func TestPropertyObligations(t *testing.T) {
	t.Parallel()
	seen := tally{}
	eachSeed(t, 250, func(t *testing.T, g *generator) {
		o := g.obliged(12)
		b, without := o.load(t), o.plain().load(t)
		for range 24 {
			a, d := g.question(o.world), g.declaration()
			if diff := obligedDiffers(t, b, without, o, a, d, seen); diff != "" {
				o = o.smaller(func(b *Bundle, o obligedWorld) bool {
					return obligedDiffers(t, b, o.plain().load(t), o, a, d, tally{}) != ""
				})
				t.Fatalf("seed %d: %s\n%s%s%+v", g.seed, obligedDiffers(t, o.load(t), o.plain().load(t), o, a, d, tally{}), o, a, d)
			}
		}
	})
	for what, percent := range map[string]int{
		"allow without obligations": 2, "allow with obligations": 5, "deny with obligations": 5, "with two policies": 1, "left out": 5, "adopted, with obligations": 1, "undeclared, allowed": 1,
		"policy_error": 2, "obligation_unfilled": 4, "approval_required": 2, "obligation_unsupported": 4,
	} {
		seen.atLeast(t, what, percent)
	}
	if n := seen["obligation_conflict"]; n < night.Cases(10) && !fewSeeds() {
		t.Errorf("%d conflicts: the generator shows little", n)
	}
}

// obligedDiffers says where a decision is not what it must be.
func obligedDiffers(t *testing.T, b, without *Bundle, o obligedWorld, a asked, by declaration, seen tally) string {
	call := a.by(t, by)
	call.Explain = true
	d, err1 := decideBy(context.Background(), b, call)
	plain, err2 := decideBy(context.Background(), without, call)
	if err1 != nil || err2 != nil {
		return whereDiffers("errors", fmt.Sprint(err1), fmt.Sprint(err2))
	}
	want := o.reckon(plain, a, by)
	for _, reason := range []evaluation.Reason{evaluation.ErroredPolicy, evaluation.ObligationConflict, evaluation.ObligationUnfilled, evaluation.ApprovalRequired, evaluation.ObligationUnsupported} {
		seen.count(string(reason), d.Reason == reason)
	}
	seen.count("allow without obligations", d.Allow && len(d.Obligations) == 0)
	seen.count("allow with obligations", d.Allow && len(d.Obligations) > 0)
	seen.count("deny with obligations", !d.Allow && len(d.Obligations) > 0)
	seen.count("adopted, with obligations", d.Adopted && len(d.Obligations) > 0)
	seen.count("with two policies", slices.ContainsFunc(d.Obligations, func(o evaluation.Obligation) bool { return len(o.Policies) > 1 }))
	seen.count("left out", len(d.LeftOut) > 0)
	diff := whereDiffers("decisions", settled(d), settled(want)) + undeclared(d, o, by, seen)
	if diff == "" {
		diff = unsatisfied(d)
	}
	return diff
}

// settled is all that obligations can change of a decision.
func settled(d evaluation.Decision) string {
	d.ID, d.Bundle, d.Explain, d.LeftOut, d.Mismatch = "", "", nil, nil, nil // whose places are those of a shape
	d.Obligations = append([]evaluation.Obligation{}, d.Obligations...)
	return jsonText(d)
}

// undeclared is the promise of the default settings by itself.
func undeclared(d evaluation.Decision, o obligedWorld, by declaration, seen tally) string {
	n := slices.IndexFunc(d.Obligations, func(owed evaluation.Obligation) bool { return d.Allow && !by.has(owed.Type) })
	if !by.october {
		seen.count("undeclared, allowed", n >= 0)
	}
	if n < 0 || o.permissive && !by.october {
		return ""
	}
	return "an allow carries " + d.Obligations[n].Type + ", which the PEP has not declared"
}

// unsatisfied looks for an obligation of a policy that the explanation does not
// call satisfied, or that has the other effect.
func unsatisfied(d evaluation.Decision) string {
	effect := map[bool]string{true: "permit", false: "forbid"}[d.Allow]
	for _, owed := range d.Obligations {
		if len(owed.Policies) == 0 || !slices.IsSorted(owed.Policies) {
			return fmt.Sprintf("%s comes from %q", owed.ID, owed.Policies)
		}
		for _, id := range owed.Policies {
			n := slices.IndexFunc(d.Explain.Policies, func(p evaluation.PolicyExplanation) bool { return p.ID == id })
			if n < 0 || d.Explain.Policies[n].Verdict != evaluation.Satisfied || d.Explain.Policies[n].Effect != effect {
				return fmt.Sprintf("%s comes from %s, which is no satisfied %s", owed.ID, id, effect)
			}
		}
	}
	return ""
}

// reckon makes of the decision without obligations the one with them.
func (o obligedWorld) reckon(d evaluation.Decision, a asked, by declaration) evaluation.Decision {
	ignore := strings.Contains(o.config, "forbid_errors: ignore")
	for _, e := range d.Errors {
		obliges := len(o.names[e.Policy]) > 0 && slices.ContainsFunc(slices.Concat(o.policies, o.world.tenant), func(p policyText) bool {
			return p.id == e.Policy && strings.Contains(p.text, ") permit (")
		})
		if d.Allow && obliges && (!ignore || e.Kind == evaluation.UnusableValue) {
			d.Deny(evaluation.ErroredPolicy)
		}
	}
	owed, unfilled, conflict := o.owedBy(d.Determining, a)
	if by.october {
		d.Draft, d.Adopted = evaluation.October, by.adopts && !by.forwards
	}
	if d.Obligations = owed; !d.Allow {
		if by.october {
			d.Obligations = slices.DeleteFunc(owed, func(o evaluation.Obligation) bool { return !by.has(o.Type) })
		}
		return d
	}
	var required []string
	for _, owed := range owed {
		if !by.has(owed.Type) && !slices.Contains(required, owed.Type) {
			required = append(required, owed.Type)
		}
	}
	slices.Sort(required)
	switch {
	case conflict:
		d.Deny(evaluation.ObligationConflict)
	case unfilled:
		d.Deny(evaluation.ObligationUnfilled)
	case len(required) == 0 || o.permissive && !by.october:
	case slices.Contains(required, obligations.ApprovalRequired):
		d.Deny(evaluation.ApprovalRequired)
		d.Required = required
	default:
		d.Deny(evaluation.ObligationUnsupported)
		d.Required = required
	}
	return d
}

// owedBy unites what policies name, the way a reader of SEMANTICS.md 4 would.
func (o obligedWorld) owedBy(policies []string, a asked) (owed []evaluation.Obligation, unfilled, conflict bool) {
	naming := map[string][]string{} // policies by name
	for _, id := range policies {
		for _, name := range o.names[id] {
			naming[name] = append(naming[name], id)
		}
	}
	saying := map[string]*evaluation.Obligation{} // by type and properties
	says := map[string][]string{}                 // by type
	for _, name := range slices.Sorted(maps.Keys(naming)) {
		all := slices.Concat(o.root, o.tenant)
		d := all[slices.IndexFunc(all, func(d owing) bool { return d.name == name })]
		properties, ok := a.fill(d.properties)
		if !ok {
			unfilled = true
			continue
		}
		key := d.typ + properties
		if saying[key] == nil {
			object, err := evaluation.ParseObject([]byte(properties), evaluation.DefaultLimits())
			if err != nil {
				panic(err)
			}
			saying[key] = &evaluation.Obligation{ID: name, Type: d.typ, Properties: object}
			says[d.typ] = append(says[d.typ], key)
		}
		saying[key].Policies = slices.Compact(slices.Sorted(slices.Values(append(saying[key].Policies, naming[name]...))))
	}
	for _, typ := range []string{"step-up", "approval_required"} {
		if len(says[typ]) > 1 {
			conflict = true
			for _, key := range says[typ] {
				delete(saying, key)
			}
		}
	}
	for _, one := range saying {
		owed = append(owed, *one)
	}
	slices.SortFunc(owed, func(a, b evaluation.Obligation) int { return strings.Compare(a.ID, b.ID) })
	return owed, unfilled, conflict
}

var variableText = regexp.MustCompile(`\$\{([^}]*)\}`)

// fill puts values into a text of JSON; those of the generator need no escapes.
func (a asked) fill(template string) (string, bool) {
	ok := true
	text := variableText.ReplaceAllStringFunc(template, func(variable string) string {
		switch variable {
		case "${principal.id}":
			return a.subject[1]
		case "${resource.id}":
			return a.resource[1]
		case "${action.name}":
			return a.action
		}
		name := strings.TrimSuffix(strings.TrimPrefix(variable, "${context."), "}")
		raw := a.members[inContext][name]
		ok = ok && raw != "" && raw[0] != '[' && raw != "1.5"
		return strings.Trim(raw, `"`)
	})
	return text, ok
}

// TestPropertyObligationsOfShapes: both shapes say the same where the PEP declared
// the same, and the native one says it with nothing but true.
func TestPropertyObligationsOfShapes(t *testing.T) {
	t.Parallel()
	seen := tally{}
	eachSeed(t, 150, func(t *testing.T, g *generator) {
		o := g.obliged(12)
		b := o.load(t)
		for range 24 {
			a, by := g.question(o.world), g.declaration()
			if diff := shapesOfObligations(t, b, a, by, seen); diff != "" {
				t.Fatalf("seed %d: %s\n%s%s%+v", g.seed, diff, o, a, by)
			}
		}
	})
	seen.atLeast(t, "approval by contract", 3)
	seen.atLeast(t, "details", 3)
	seen.atLeast(t, "no details", 2)
}

// nativeBody is a native answer, read strictly.
type nativeBody struct {
	Allow       *bool                      `json:"allow"`
	Obligations map[string]json.RawMessage `json:"obligations"`
	Details     json.RawMessage            `json:"obligation_details"`
	Reason      string                     `json:"reason"`
	Required    []string                   `json:"required_obligations"`
}

func shapesOfObligations(t *testing.T, b *Bundle, a asked, by declaration, seen tally) string {
	by.october, by.adopts = false, false // October's form is AuthZEN's alone
	n, err1 := decideBy(context.Background(), b, a.by(t, by).native())
	z, err2 := decideBy(context.Background(), b, a.by(t, by.with(obligations.ApprovalRequired)))
	if err1 != nil || err2 != nil {
		return whereDiffers("errors", fmt.Sprint(err1), fmt.Sprint(err2))
	}
	text, err := evaluation.Native.Answer(n)
	var body nativeBody
	decoder := json.NewDecoder(strings.NewReader(string(text)))
	if decoder.DisallowUnknownFields(); err != nil || decoder.Decode(&body) != nil || body.Allow == nil || *body.Allow != n.Allow {
		return fmt.Sprintf("the native answer is %s, %v", text, err)
	}
	types, details := map[string]int{}, false
	for _, owed := range z.Obligations {
		types[owed.Type]++
		details = details || owed.Properties.Len() > 0 || types[owed.Type] > 1
		seen.count("approval by contract", n.Allow && owed.Type == obligations.ApprovalRequired && !by.has(owed.Type))
	}
	for typ, value := range body.Obligations {
		if string(value) != "true" || types[typ] == 0 {
			return fmt.Sprintf("%s is %s in %s", typ, value, text)
		}
	}
	seen.count("details", details)
	seen.count("no details", len(types) > 0 && !details)
	all := ""
	if details {
		all = arrayOf(t, z)
	}
	return whereDiffers("decisions", settled(n), settled(z)) +
		whereDiffers("types", fmt.Sprint(slices.Sorted(maps.Keys(types))), fmt.Sprint(slices.Sorted(maps.Keys(body.Obligations)))) +
		whereDiffers("details", all, string(body.Details)) +
		whereDiffers("reasons", fmt.Sprint(z.Reason, z.Required), fmt.Sprint(body.Reason, body.Required))
}

// arrayOf is the array of an AuthZEN answer.
func arrayOf(t *testing.T, d evaluation.Decision) string {
	t.Helper()
	text, err := evaluation.AuthZEN.Answer(d)
	var body struct {
		Context struct{ Obligations json.RawMessage }
	}
	if err != nil || json.Unmarshal(text, &body) != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return string(body.Context.Obligations)
}
