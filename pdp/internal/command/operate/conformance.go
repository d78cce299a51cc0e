package operate

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"policy-service/conformance"
	"policy-service/pdp/internal/command/cli"
)

// Conformance tests a PDP or a PEP from outside, ours or another.
type Conformance struct {
	URL  string   `arg:"" optional:"" help:"The base URL of the PDP, with the path of a tenant if it has one; or where the PEP speaks MCP."`
	Key  string   `placeholder:"KEY" help:"The credential to send to a PDP, as Authorization: Bearer."`
	Plan []string `placeholder:"PLAN" help:"Run only this plan. Repeat for more. The default is all plans of the specification of PDPs."`
	JSON bool     `name:"json" help:"Print JSON, for programs."`
	PEP  pepFlags `embed:""`
}

// Help ends the command's help.
func (Conformance) Help() string {
	var b strings.Builder
	b.WriteString("The PDP must answer as conformance/bundle answers. The plans are:\n\n")
	for _, p := range conformance.Plans() {
		more := ""
		if !p.Spec {
			more = " (only with --plan)"
		}
		fmt.Fprintf(&b, "  %-18s %s%s\n", p.Name, p.Title, more)
	}
	b.WriteString(pepHelp())
	b.WriteString("\nExit codes: 0 if no case failed, 1 if one failed, 2 if it cannot run.")
	return b.String()
}

// Run judges a PDP, or a PEP if the plans are of PEPs. With --print-tools it judges nothing.
func (c Conformance) Run(s cli.Streams) error {
	ctx, stop := cli.UntilSignal()
	defer stop()
	judge := c.judgePDP
	switch ofPEPs := slices.ContainsFunc(c.Plan, isPEPPlan); {
	case c.PEP.PrintTools:
		return printTools(s)
	case ofPEPs && slices.ContainsFunc(c.Plan, func(name string) bool { return !isPEPPlan(name) }):
		return errors.New("one run judges a PDP or a PEP, and these plans are of both; try a run for each")
	case c.URL == "":
		return errors.New("there is nothing to judge; try policy-service conformance URL")
	case ofPEPs && c.Key != "":
		return errors.New("a PEP gets tokens of the suite's own issuer, and no credential; try it without --key")
	case ofPEPs:
		judge = c.judgePEP
	case c.PEP.given():
		return errors.New("these flags are for plans of PEPs: --pdp-listen, --era and the others about a PEP; try --plan coaz with them")
	}
	report, err := judge(ctx, s)
	if err != nil {
		return fmt.Errorf("cannot judge: %w", err)
	}
	text := func() error {
		var b strings.Builder
		err := report.WriteText(&b) // what a server answered is in it
		s.Print("%s", cli.Lines(strings.TrimSuffix(b.String(), "\n")))
		return err
	}
	return s.Answer(c.JSON, report, text, !report.OK())
}

func (c Conformance) judgePDP(ctx context.Context, _ cli.Streams) (conformance.Report, error) {
	target := conformance.Target{URL: c.URL, Plans: c.Plan, Header: http.Header{}}
	if c.Key != "" {
		target.Header.Set("Authorization", "Bearer "+c.Key)
	}
	return conformance.Run(ctx, target)
}
