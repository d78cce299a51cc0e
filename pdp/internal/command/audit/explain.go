package audit

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/internal/command/cli"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/recorder"
	"policy-service/pdp/internal/decisionlog/remote"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/internal/replay"
)

// whyJSON says how a decision came about, by two bundles. An explanation that cannot be given has a note in its place.
type whyJSON struct {
	AsItWas *record.Explained `json:"as_it_was"`
	ThenNot string            `json:"as_it_was_note,omitzero"`
	Today   *record.Explained `json:"today"`
	NowNot  string            `json:"today_note,omitzero"`
	// With is the directory in place of today's policies.
	With string `json:"with,omitzero"`
}

// others are the policies that a decision is also explained by, or why there are none.
type others struct {
	side *replay.Side
	note string
	with string
}

// shown finds the record, and the policies of today if they are asked for.
func (c showCommand) shown() (shown segment.Shown, today others, err error) {
	if c.With != "" {
		if today.side, err = readSide(string(c.With), "--with"); err != nil {
			return shown, today, err
		}
		today.with = string(c.With)
	}
	err = c.read("show the record", func(ctx context.Context, log auditLog) (err error) {
		if shown, err = log.Show(ctx, c.ID); err != nil || !c.Explain || c.With != "" {
			return err
		}
		today.side, err = inForce(ctx, log)
		if errors.Is(err, replay.ErrNoBundle) {
			today.note, err = err.Error()+"; give their directory with --with DIR", nil
		}
		return err
	})
	return shown, today, err
}

func inForce(ctx context.Context, log auditLog) (*replay.Side, error) {
	if here, is := log.(logHere); is {
		return replay.InForce(ctx, replay.OfLog(here.Snapshot))
	}
	digest, files, err := log.(*remote.Log).InForce(ctx)
	switch {
	case err != nil:
		return nil, err
	case files == nil:
		return nil, fmt.Errorf("%w: the server does not say which it is to this credential, or does not keep its files", replay.ErrNoBundle)
	}
	b, err := recorder.Compile(files, "")
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", replay.ErrNoBundle, digest, err)
	}
	return replay.SideOf(b, files), nil
}

// explained explains a decision as it was, and by the policies of today.
func explained(shown segment.Shown, today others) *whyJSON {
	why := &whyJSON{NowNot: today.note, With: today.with}
	r, ctx, limits := &shown.Record, context.Background(), evaluation.DefaultLimits()
	var then *recorder.Then
	switch b, err := compiledFor(r, shown.Files); {
	case r.Bundle == "":
		why.ThenNot, why.NowNot = "no policies decided this", "no policies decided this"
		return why
	case shown.Files == nil:
		why.ThenNot = "the policies that decided are not kept here"
	case err != nil:
		why.ThenNot = err.Error()
	default:
		then = recorder.ThenOf(b, shown.Files)
		why.AsItWas, err = then.Explain(ctx, r, limits)
		why.ThenNot = noteOf(err)
	}
	if today.side == nil {
		return why
	}
	var bound []byte
	if len(r.Discharged) > 0 || r.Approved {
		if then == nil {
			why.NowNot = "the decision used an approval, and without the policies of then it is not known what that is bound to"
			return why
		}
		var err error
		if bound, err = replay.BoundBy(ctx, r, then.Bundle, limits); err != nil {
			why.NowNot = noteOf(err)
			return why
		}
	}
	now := recorder.ThenOf(today.side.Bundle, today.side.Files)
	if now.Bundle.Digest() == r.Bundle && then != nil {
		now = then // which has the tenant, too, if it has no files of its own
	}
	var err error
	why.Today, err = now.ExplainBound(ctx, r, bound, limits)
	why.NowNot = noteOf(err)
	return why
}

// compiledFor is the bundle that decided.
func compiledFor(r *record.Recorded, files map[string][]byte) (*pdp.Bundle, error) {
	if files == nil {
		return nil, nil
	}
	b, err := recorder.Compile(files, "")
	if err == nil && !b.HasTenant(r.Tenant) {
		b, err = recorder.Compile(files, r.Tenant)
	}
	return b, err
}

// noteOf says why there is no explanation, "" without an error.
func noteOf(err error) string {
	var bad *evaluation.Error
	switch {
	case err == nil:
		return ""
	case errors.Is(err, pdp.ErrUnknownTenant), errors.Is(err, pdp.ErrTenantUnavailable):
		return "these policies have no such tenant"
	case errors.As(err, &bad):
		return "these policies cannot be asked this: " + bad.Error()
	}
	return err.Error()
}

func (w *whyJSON) print(s cli.Streams) {
	printExplained(s, "as it was", w.AsItWas, w.ThenNot)
	by := "by today's policies"
	if w.With != "" {
		by = "by " + w.With
	}
	printExplained(s, by, w.Today, w.NowNot)
}

func printExplained(s cli.Streams, by string, e *record.Explained, note string) {
	if e == nil {
		s.Print("\n%s: not known: %s", by, cli.Quoted(note))
		return
	}
	switch {
	case e.DependsOn != nil:
		s.Print("\n%s: depends on %s, which a mask hides; read by %s (%s)", by, strings.Join(e.DependsOn.Paths, ", "),
			strings.Join(e.DependsOn.Policies, ", "), e.Bundle)
	default:
		text, differs := e.Answer, ""
		if e.Reason != "" {
			text += ", " + string(e.Reason)
		}
		if e.Same != nil && !*e.Same {
			differs = ", and not what is on record"
		}
		s.Print("\n%s: %s%s (%s)", by, text, cli.Shown(differs), e.Bundle)
	}
	for _, m := range e.Mismatch {
		s.Print("  mismatch     %s: %s", m.Pointer, cli.Quoted(m.Detail))
	}
	for _, m := range e.Dropped {
		s.Print("  dropped      %s: %s", m.Pointer, cli.Quoted(m.Detail))
	}
	if len(e.Policies) == 0 {
		s.Print("  no policy's scope fits the request")
	}
	for _, p := range e.Policies {
		part := ""
		if p.Part != "" {
			part = ", " + string(p.Part)
		}
		s.Print("  %s%s  %s %s (%s)", strings.ReplaceAll(string(p.Verdict), "_", " "), part, p.Effect, p.ID, p.Position)
		for _, clause := range p.Clauses {
			s.Print("    %-11s %s", strings.ReplaceAll(string(clause.Result), "_", " "), cli.Quoted(strings.Join(strings.Fields(clause.Text), " ")))
		}
	}
	if e.More > 0 {
		s.Print("  and %d policies more", e.More)
	}
}
