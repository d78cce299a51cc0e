package gateway

import (
	"context"
	"errors"
	"maps"
	"os"
	"slices"

	"policy-service/pdp/internal/command/cli"
	"policy-service/pdp/internal/command/process"
	"policy-service/pdp/internal/finding"
	"policy-service/pdp/internal/mcp"
	"policy-service/pdp/internal/server/config"
)

// flagTag marks the flags that set keys.
const flagTag = "gateway-key"

// HelpOfKeys gives each flag that sets a key the help of that key.
var HelpOfKeys = process.HelpOfKeys(flagTag, mcp.Form.Keys())

// configFlags are the flags that configure the gateway. A flag with a key sets that key, and wins over the file and the
// environment. Its help is that of the key.
type configFlags struct {
	Config      cli.Given `placeholder:"FILE" env:"MCP_GATEWAY_CONFIG" help:"The configuration file, in YAML. Environment variables win over the file, and flags win over both."`
	Listen      cli.Given `gateway-key:"listen" placeholder:"ADDR"`
	PDPPolicies cli.Given `gateway-key:"pdp.embedded.policies" name:"pdp-policies" placeholder:"DIR"`
	PDPData     cli.Given `gateway-key:"pdp.embedded.data" name:"pdp-data" placeholder:"DIR"`
}

// read is the configuration of file, environment and flags.
func (c configFlags) read() (told mcp.Config, from config.Origins, err error) {
	from, err = mcp.Form.Read(config.Given{File: string(c.Config), Environ: os.Environ(), Flags: process.Flags(c, flagTag)}, &told)
	mcp.Form.SetDefaults(&told)
	return told, from, err
}

// Config is about the configuration of the gateway.
type Config struct {
	Check  configCheck  `cmd:"" help:"List every mistake in a configuration file of the gateway."`
	Print  configPrint  `cmd:"" help:"Print the configuration that the gateway would have, and the origin of each value."`
	Schema configSchema `cmd:"" help:"Print the JSON Schema of the gateway's configuration file, for editors."`
}

type configCheck struct {
	File string `arg:"" help:"The configuration file."`
}

// Help ends the command's help.
func (configCheck) Help() string {
	return "The command reads the file. It reads neither flags and environment variables, nor the files that it names.\n\n" +
		"Exit codes: 0 if there are no mistakes (there may be warnings), 1 if there are mistakes, 2 if it cannot read the file."
}

// Run prints every mistake.
func (c configCheck) Run(s cli.Streams) error {
	told, from, err := process.CheckConfig(mcp.Form, c.File, s)
	if err != nil {
		return err
	}
	process.PrintWarnings(configuration{told}.Findings(context.Background()), c.File, from, s)
	return nil
}

// configuration is what the operator wrote.
type configuration struct{ told mcp.Config }

// Findings looks for what is probably not meant.
func (c configuration) Findings(context.Context) (found finding.List) {
	if e := c.told.PDP.Embedded; e != nil && e.Data == "" {
		found.WrongKey("pdp", "pdp.embedded", errors.New(NoData))
	}
	hosts := c.told.WholeHosts()
	for _, at := range slices.Sorted(maps.Keys(hosts)) {
		found.WrongKey("configuration", at, hosts[at])
	}
	return found
}

type configPrint struct {
	configFlags `embed:""`
}

// Help ends the command's help.
func (configPrint) Help() string {
	return "The command takes the flags of mcp-gateway. It prints a configuration file that says the same. " +
		"A comment beside each value names its origin: default, file:line:column, a variable or a flag."
}

// Run prints the configuration that the gateway would have.
func (c configPrint) Run(s cli.Streams) error {
	told, from, err := c.read()
	if err != nil {
		return err
	}
	return process.PrintConfig(mcp.Form, told, from, s)
}

type configSchema struct{}

// Run prints the schema.
func (configSchema) Run(s cli.Streams) error {
	_, err := s.Out.Write(mcp.Form.Schema())
	return err
}
