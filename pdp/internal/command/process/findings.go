package process

import (
	"policy-service/pdp/internal/command/cli"
	"policy-service/pdp/internal/server/doctor"
)

// PrintFindings prints the findings of a doctor, and ends the command: with No if something bites.
func PrintFindings(found []doctor.Finding, asJSON bool, s cli.Streams) error {
	biting := 0
	for _, f := range found {
		if f.Bites {
			biting++
		}
	}
	document := struct {
		Findings []doctor.Finding `json:"findings"`
	}{found}
	return s.Answer(asJSON, document, func() error { return printFindings(found, biting, s) }, biting > 0)
}

func printFindings(found []doctor.Finding, biting int, s cli.Streams) error {
	table := s.Table()
	for _, f := range found {
		how, message := s.Colour(cli.Green, "ok   "), f.Message
		if f.Bites {
			how = s.Colour(cli.Red, "bites")
		}
		if f.Try != "" {
			message += "; " + f.Try
		}
		table.Row(how, f.Check, cli.Quoted(message))
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
