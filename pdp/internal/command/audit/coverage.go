package audit

import (
	"context"
	"fmt"
	"time"

	"policy-service/pdp"
	"policy-service/pdp/internal/command/bundledir"
	"policy-service/pdp/internal/command/cli"
	"policy-service/pdp/internal/replay"
)

// CoverageCommand is policy-service coverage.
type CoverageCommand struct {
	sourceFlags
	Dir    string    `arg:"" help:"The directory of the policies."`
	Span   spanFlags `embed:""`
	Tenant cli.Given `placeholder:"T" help:"Only decisions of this tenant."`
	JSON   bool      `name:"json" help:"Print JSON, for programs."`
}

// Help ends the command's help.
func (CoverageCommand) Help() string {
	return "For each policy of the directory: whether a test satisfies it, how many recorded decisions it determined, in how many a " +
		"reason such as approval_required denied what it allowed (overruled), and in how many it had an error. A policy without any is " +
		"named. Nothing is asked again: the records say it, by the ids of policies. One that was put in force lately has had few decisions.\n\n" +
		"Exit codes: 0, or 2 if it cannot run."
}

// coverage is the outcome of the command.
type coverage struct {
	Bundle string    `json:"bundle"`
	From   time.Time `json:"from,omitzero"`
	To     time.Time `json:"to,omitzero"`
	replay.Traffic
	Tests    int             `json:"tests"`
	Policies []coveredPolicy `json:"policies"`
	// Others are policies on record that the directory does not have.
	Others []replay.PolicyParts `json:"others"`
}

type coveredPolicy struct {
	replay.PolicyParts
	Tested bool `json:"tested"`
}

// Run counts, which reads the whole log once.
func (c CoverageCommand) Run(s cli.Streams) error {
	bundle, err := bundledir.Load(c.Dir, s)
	if err != nil {
		return err
	}
	made := coverage{Bundle: bundle.Digest(), Policies: []coveredPolicy{}}
	tests, err := testsIn(s, c.Dir)
	if err != nil {
		return err
	}
	made.Tests = len(tests)
	decider, covered := pdp.Of(bundle, pdp.Options{}), pdp.Coverage{}
	for _, e := range tests {
		e.Call.Explain = true
		if d, err := decider.Evaluate(context.Background(), e.Call); err == nil { // else policy-service test says so
			covered.Add(e.Call.Request.Tenant, d)
		}
	}
	err = c.walk(s, c.Span, c.Tenant, func(o replay.Options) error {
		made.From, made.To = o.From, o.To
		return c.replayed("count decisions", false, func(ctx context.Context, log replay.Source) (err error) {
			made.Traffic, err = replay.CountTraffic(ctx, log, o)
			return err
		})
	})
	if err != nil {
		return err
	}
	all, others := made.Of(bundle)
	made.Others = others
	for _, p := range all {
		made.Policies = append(made.Policies, coveredPolicy{p, covered.Has(p.PolicyInfo)})
	}
	return s.Answer(c.JSON, made, func() error { return made.print(s) }, false)
}

// testsIn reads the tests of a bundle. If one cannot be read, all that is wrong is printed.
func testsIn(s cli.Streams, dir string) ([]pdp.Example, error) {
	tests, problems := pdp.Examples(pdp.Dir(dir))
	if problems.Refuse() {
		s.Tell("%s", cli.Lines(bundledir.Placed(dir, problems).Error()))
		return nil, fmt.Errorf("the tests in %s cannot be read; mend what is listed above and try again", dir)
	}
	return tests, nil
}

func (m coverage) print(s cli.Streams) error {
	t := s.Table()
	t.Row("DETERMINED", "OVERRULED", "ERRORS", "TESTS", "POLICY", "POSITION")
	idle, untested := 0, 0
	word := map[bool]string{true: "yes", false: "-"}
	for _, p := range m.Policies {
		t.Row(p.Determined, p.Overruled, p.Errors, word[p.Tested], p.ID, p.Position)
		if p.Parts == (replay.Parts{}) {
			idle++
			if !p.Tested {
				untested++
			}
		}
	}
	for _, p := range m.Others {
		t.Row(p.Determined, p.Overruled, p.Errors, "", p.ID, "not here")
	}
	notJudged(func(_ any, format string, args ...any) { s.Tell("not counted "+format, args...) }, m.Incomplete)
	if err := t.Flush(); err != nil {
		return err
	}
	span := ""
	if !m.From.IsZero() {
		span += " since " + cli.Time(m.From)
	}
	if !m.To.IsZero() {
		span += " until " + cli.Time(m.To)
	}
	for _, p := range m.Policies {
		if p.Parts == (replay.Parts{}) {
			tested := "a test satisfies it"
			if !p.Tested {
				tested = "no test satisfies it"
			}
			s.Print("%s%s %s: %s %s; %s", s.Colour(cli.Yellow, "never"), span, p.Position, p.Effect, p.ID, tested)
		}
	}
	s.Print("%s%s: %d of %d policies had no part, and no test satisfies %d of these", cli.Plural(int(m.Decisions), "decision"), span, idle, len(m.Policies), untested)
	return nil
}
