package author

import (
	"strings"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/internal/command/cli"
)

// printDecision shows a decision to a person: the answer first, then why.
func printDecision(s cli.Streams, bundle *pdp.Bundle, d evaluation.Decision) {
	s.Print("%s", verdict(s, d))
	if d.Reason != "" {
		s.Print("  reason       %s", d.Reason)
	}
	for _, m := range d.Mismatch {
		s.Print("  mismatch     %s: %s", m.Pointer, cli.Quoted(m.Detail))
	}
	if d.Refused != nil {
		s.Print("  refused      %s: %s", d.Refused.Pointer, cli.Quoted(d.Refused.Detail))
	}
	if d.ReasonUser != "" {
		s.Print("  to the user  %s", d.ReasonUser)
	}
	positions := positionsOf(bundle)
	for _, id := range d.Determining {
		s.Print("  determining  %s%s", id, positions[id])
	}
	for _, id := range d.Overruled {
		s.Print("  overruled    %s%s", id, positions[id])
	}
	for _, e := range d.Errors {
		s.Print("  error        %s (%s): %s", e.Policy, e.Position, e.Kind)
	}
	for _, o := range d.Obligations {
		from := make([]string, len(o.Policies))
		for n, id := range o.Policies {
			from[n] = id + positions[id]
		}
		s.Print("  obligation   %s (%s) from %s", o.ID, o.Type, strings.Join(from, ", "))
	}
	for _, t := range d.Required {
		if d.Draft == evaluation.October {
			s.Print("  required     %s: declare %s in context.supported_obligations, and obligations in context.supported_mandatory_extensions", t, d.Draft.Type(t))
			continue
		}
		s.Print("  required     %s: declare it in context.supported_obligations", t)
	}
	for _, o := range d.LeftOut {
		s.Print("  left out     %s: %s", o.ID, cli.Quoted(o.Reason))
	}
	if len(d.Determining) == 0 && d.Reason == "" && d.Explain == nil {
		s.Print("  no permit applies; try --explain")
	}
	if d.Explain != nil {
		printExplanation(s, *d.Explain, d.Reason)
	}
}

func printExplanation(s cli.Streams, e evaluation.Explanation, reason evaluation.Reason) {
	if len(e.Policies) == 0 {
		switch reason {
		case evaluation.UnknownType, evaluation.SchemaMismatch, evaluation.UnknownEntity:
			s.Print("  no policy was asked")
		default:
			s.Print("  no policy's scope fits the request")
		}
	}
	for _, m := range e.Dropped {
		s.Print("  dropped      %s: %s", m.Pointer, cli.Quoted(m.Detail))
	}
	for _, p := range e.Policies {
		s.Print("%-13s  %s %s (%s)", p.Verdict, p.Effect, p.ID, p.Position)
		if p.Failed != "" {
			s.Print("  failed       %s", cli.Quoted(strings.Join(strings.Fields(p.Failed), " ")))
		}
		for _, a := range p.Attributes {
			s.Print("  reads        %s: %s", cli.Quoted(a.Path), strings.ReplaceAll(string(a.Source), "_", " "))
		}
	}
}

func verdict(s cli.Streams, d evaluation.Decision) cli.Shown {
	if d.Allow || d.Possible == evaluation.Possible {
		return s.Colour(cli.Green, word(d))
	}
	return s.Colour(cli.Red, word(d))
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
