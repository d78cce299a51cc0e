package process

import (
	"cmp"
	"fmt"

	"policy-service/pdp/internal/command/cli"
	"policy-service/pdp/internal/finding"
	"policy-service/pdp/internal/server/config"
)

// PrintFindings prints the findings of a doctor, and ends the command: with No if something bites.
func PrintFindings(found finding.List, asJSON bool, s cli.Streams) error {
	biting := 0
	for _, f := range found {
		if f.Bites {
			biting++
		}
	}
	document := struct {
		Findings finding.List `json:"findings"`
	}{found}
	return s.Answer(asJSON, document, func() error { return printFindings(found, biting, s) }, biting > 0)
}

// PrintWarnings prints what was found of a configuration file without mistakes, which a flag or a variable may still mend.
func PrintWarnings(found finding.List, file string, from config.Origins, s cli.Streams) {
	for _, f := range found {
		place := file
		if f.Key != "" {
			place = cmp.Or(from[f.Key], file)
		}
		s.Print("%s", s.Colour(cli.Yellow, cli.Quoted(fmt.Sprintf("%s: warning: %s", place, f.Text()))))
	}
	s.Print("%s has no mistakes", file)
}

func printFindings(found finding.List, biting int, s cli.Streams) error {
	table := s.Table()
	for _, f := range found {
		how := s.Colour(cli.Green, "ok   ")
		if f.Bites {
			how = s.Colour(cli.Red, "bites")
		}
		table.Row(how, f.Check, cli.Quoted(f.Text()))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if biting == 0 {
		s.Print("nothing bites")
	} else {
		s.Print("things that bite: %d of %d", biting, len(found))
	}
	return nil
}
