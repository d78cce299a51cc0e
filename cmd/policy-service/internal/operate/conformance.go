package operate

import (
	"fmt"
	"net/http"
	"strings"

	"policy-service/cmd/policy-service/internal/cli"
	"policy-service/conformance"
)

// Conformance tests a PDP from outside, ours or another.
type Conformance struct {
	URL  string   `arg:"" help:"The base URL of the PDP, with the path of a tenant if it has one."`
	Key  string   `placeholder:"KEY" help:"The credential to send, as Authorization: Bearer."`
	Plan []string `placeholder:"PLAN" help:"Run only this plan. Repeat for more. The default is all plans of the specification."`
	JSON bool     `name:"json" help:"Print JSON, for programs."`
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
	b.WriteString("\nExit codes: 0 if no case failed, 1 if one failed, 2 if it cannot run.")
	return b.String()
}

// Run judges a PDP.
func (c Conformance) Run(s cli.Streams) error {
	ctx, stop := cli.UntilSignal()
	defer stop()
	target := conformance.Target{URL: c.URL, Plans: c.Plan, Header: http.Header{}}
	if c.Key != "" {
		target.Header.Set("Authorization", "Bearer "+c.Key)
	}
	report, err := conformance.Run(ctx, target)
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
