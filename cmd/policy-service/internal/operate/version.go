package operate

import (
	"policy-service/cmd/policy-service/internal/cli"
	"policy-service/pdp/version"
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
