package main

import (
	"strings"

	"policy-service/evaluation"
	"policy-service/pdp"
)

// printDecision says a decision to a person: the answer first, then why.
func (s streams) printDecision(bundle *pdp.Bundle, d evaluation.Decision) {
	s.print("%s", s.verdict(d.Allow))
	if d.Reason != "" {
		s.print("  reason       %s", d.Reason)
	}
	for _, m := range d.Mismatch {
		s.print("  mismatch     %s: %s", m.Pointer, m.Detail)
	}
	if d.ReasonUser != "" {
		s.print("  to the user  %s", d.ReasonUser)
	}
	positions := positionsOf(bundle)
	for _, id := range d.Determining {
		s.print("  determining  %s%s", id, positions[id])
	}
	for _, e := range d.Errors {
		s.print("  error        %s (%s): %s", e.Policy, e.Position, e.Kind)
	}
	for _, o := range d.Obligations {
		from := make([]string, len(o.Policies))
		for n, id := range o.Policies {
			from[n] = id + positions[id]
		}
		s.print("  obligation   %s (%s) from %s", o.ID, o.Type, strings.Join(from, ", "))
	}
	for _, t := range d.Required {
		s.print("  required     %s: declare it in context.supported_obligations", t)
	}
	for _, o := range d.LeftOut {
		s.print("  left out     %s: %s", o.ID, o.Reason)
	}
	if len(d.Determining) == 0 && d.Reason == "" && d.Explain == nil {
		s.print("  no permit applies; try --explain")
	}
	if d.Explain != nil {
		s.printExplanation(*d.Explain)
	}
}

func (s streams) printExplanation(e evaluation.Explanation) {
	if len(e.Policies) == 0 {
		s.print("  no policy's scope fits the request")
	}
	for _, p := range e.Policies {
		s.print("%-13s  %s %s (%s)", p.Verdict, p.Effect, p.ID, p.Position)
		if p.Failed != "" {
			s.print("  failed       %s", strings.Join(strings.Fields(p.Failed), " "))
		}
		for _, a := range p.Attributes {
			s.print("  reads        %s: %s", a.Path, strings.ReplaceAll(string(a.Source), "_", " "))
		}
	}
}

func (s streams) verdict(allow bool) coloured {
	if allow {
		return colour(s.out, green, "allow")
	}
	return colour(s.out, red, "deny")
}

// positionsOf maps ids of policies to " (file:line:column)".
func positionsOf(bundle *pdp.Bundle) map[string]string {
	positions := make(map[string]string)
	for _, p := range bundle.Policies() {
		if p.Position != "" {
			positions[p.ID] = " (" + p.Position + ")"
		}
	}
	return positions
}
