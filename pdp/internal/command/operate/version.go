package operate

import (
	"policy-service/pdp/internal/command/cli"
	"policy-service/pdp/internal/version"
)

// Version prints which program this is.
type Version struct {
	JSON bool `name:"json" help:"Print JSON, for programs."`
}

// Run prints which program this is.
func (c Version) Run(s cli.Streams) error {
	b := version.This()
	if c.JSON {
		return s.PrintJSON(b)
	}
	s.Print("%s", b)
	return nil
}
